# shellcheck shell=bash
# Building what runs in a guest: the project's test binaries and programs. They are made on the host,
# for the libc of the host, which is not newer than that of any guest.

# The variable that tells a test its device. A package whose tests have the name in their source, or
# import a package of the project that has it, needs a device.
DEVICE_VARIABLE=RDMANET_TEST_DEVICE

# build_suite RUN RACE ALL PATTERN... puts into RUN/bin all programs of the project and the test binaries
# of the packages that PATTERN names and that need a device (ALL=1: of all that have tests), and writes
# RUN/tests, the list of the latter (see guest/suite.sh).
build_suite() {
	local run=$1 race=$2 all=$3
	shift 3
	command -v go >/dev/null 2>&1 || die "this host has no go command"
	need_host gcc:gcc /usr/include/stdlib.h:libc6-dev
	export CGO_ENABLED=1 GOOS=linux GOARCH=amd64
	mkdir -p "$run/bin"
	: >"$run/tests"

	# The binaries are kept from run to run, because go does not link again what is up to date.
	local tree=${LAB_DIR%/*} keep
	keep=$LAB_CACHE/bin-$(cache_key "$tree" "$race" -- /dev/null)
	mkdir -p "$keep"
	touch "$keep"
	(
		flock 7
		cd "$tree" || exit 1
		build_programs "$keep" "$run" "$race" 7>&-
		build_tests "$keep" "$run" "$race" "$all" "$@" 7>&-
	) 7>"$keep/.lock"
}

# go_flags RACE prints the flags of every build. The state of the checkout stays out of the binaries:
# each commit would link all of them again.
go_flags() {
	echo -buildvcs=false
	if [ "$1" = 1 ]; then echo -race; fi
}

build_programs() {
	local keep=$1 run=$2 race=$3 programs program
	programs=$(go list -f '{{if eq .Name "main"}}{{.ImportPath}}{{end}}' ./...) || die "go list ./... fails"
	for program in $programs; do
		# shellcheck disable=SC2046 # a list
		go build $(go_flags "$race") -o "$keep/${program##*/}" "$program" || die "$program does not build"
		ln -f "$keep/${program##*/}" "$run/bin/"
	done
}

build_tests() {
	local keep=$1 run=$2 race=$3 all=$4 module list helpers path dir imports files file needs
	shift 4
	module=$(go list -m) || die "go list -m fails"
	helpers=$(go list -f '{{if .GoFiles}}{{.ImportPath}}|{{.Dir}}|{{join .GoFiles " "}}{{end}}' ./...) || die "go list ./... fails"
	helpers=$(while IFS='|' read -r path dir files; do
		# shellcheck disable=SC2086 # a list
		if [ -n "$files" ] && (cd "$dir" && grep -qw $DEVICE_VARIABLE $files); then echo "$path"; fi
	done <<<"$helpers")
	list=$(go list -f '{{if or .TestGoFiles .XTestGoFiles}}{{.ImportPath}}|{{.Dir}}|{{join .TestImports " "}} {{join .XTestImports " "}}|{{join .TestGoFiles " "}} {{join .XTestGoFiles " "}}{{end}}' "$@") ||
		die "go list $* fails"
	while IFS='|' read -r path dir imports files; do
		[ -n "$path" ] || continue
		needs=any
		# shellcheck disable=SC2086 # lists
		if (cd "$dir" && grep -qw $DEVICE_VARIABLE $files) ||
			{ [ -n "$helpers" ] && printf '%s\n' $imports | grep -qxF "$helpers"; }; then
			needs=device
		fi
		[ $needs = device ] || [ "$all" = 1 ] || continue
		file=${path#"$module"/}
		file=${file##"$module"}
		file=${file//\//_}
		[ -n "$file" ] || file=${module##*/}
		# shellcheck disable=SC2046 # a list
		go test -c $(go_flags "$race") -o "$keep/$file.test" "$path" || die "the tests of $path do not build"
		ln -f "$keep/$file.test" "$run/bin/"
		printf '%s\t%s\t%s\t%s\n' "$file.test" "$path" "${dir#"$tree"}" $needs >>"$run/tests"
	done <<<"$list"
}
