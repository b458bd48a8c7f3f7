# shellcheck shell=bash
# Packages of any Debian suite, fetched by apt with a configuration of its own: the host's package
# state is neither read nor changed, and signatures are checked as apt checks them.

# debian_mirror prints where this host gets Debian from. apt itself is asked, so that every form of
# its configuration counts.
debian_mirror() {
	if [ -n "${RDMANET_LAB_MIRROR:-}" ]; then
		echo "$RDMANET_LAB_MIRROR"
		return
	fi
	local codename uri
	# shellcheck source=/dev/null
	codename=$(. /etc/os-release && echo "${VERSION_CODENAME:-}")
	# shellcheck disable=SC2016 # these are apt's variables
	uri=$(apt-get indextargets --format '$(CREATED_BY) $(RELEASE) $(COMPONENT) $(REPO_URI)' 2>/dev/null |
		awk -v r="$codename" '$1 == "Packages" && ($2 == r || $2 == "stable" || $2 == "unstable") && $3 == "main" { print $4; exit }')
	[ -n "$uri" ] || die "apt's configuration names no Debian mirror with '$codename main'; set RDMANET_LAB_MIRROR to the URL of one"
	echo "$uri"
}

# apt_dir SUITE names the directory in which debian_apt has prepared apt.
apt_dir() { APT_DIR=$LAB_CACHE/apt/$1; }

# debian_apt SUITE prepares apt for a suite of Debian, for the functions below.
# Package lists and downloads are kept in the cache between builds. The caller holds the suite's lock:
# see with_suite.
debian_apt() {
	local suite=$1 mirror keyring signed=
	mirror=$(debian_mirror) || exit 1
	apt_dir "$suite"
	mkdir -p "$APT_DIR"/{lists,archives}/partial "$APT_DIR/etc"
	for keyring in /usr/share/keyrings/debian-archive-keyring.{gpg,pgp}; do
		[ ! -e "$keyring" ] || signed="[signed-by=$keyring] "
	done
	echo "deb $signed$mirror $suite main" >"$APT_DIR/etc/sources.list"
	: >"$APT_DIR/etc/status"
	cat >"$APT_DIR/etc/apt.conf" <<-CONF
		#clear APT::Update::Post-Invoke-Success;
		#clear APT::Update::Post-Invoke;
		#clear DPkg::Post-Invoke;
		#clear Acquire::IndexTargets::deb::DEP-11;
		#clear Acquire::IndexTargets::deb::DEP-11-icons;
		#clear Acquire::IndexTargets::deb::DEP-11-icons-small;
		#clear APT::Architectures;
		APT::Architecture "amd64";
		APT::Architectures "amd64";
		APT::Default-Release "";
		APT::Install-Recommends "false";
		APT::Sandbox::User "root";
		APT::Update::Error-Mode "any";
		Acquire::Languages "none";
		Acquire::Retries "3";
		Dir::State::status "$APT_DIR/etc/status";
		Dir::State::lists "$APT_DIR/lists";
		Dir::State::extended_states "$APT_DIR/etc/extended_states";
		Dir::Cache::archives "$APT_DIR/archives";
		Dir::Cache::pkgcache "";
		Dir::Cache::srcpkgcache "";
		Dir::Etc::sourcelist "$APT_DIR/etc/sources.list";
		Dir::Etc::sourceparts "/dev/null";
		Dir::Etc::preferences "/dev/null";
		Dir::Etc::preferencesparts "/dev/null";
	CONF
	apt_quietly apt-get update || die "cannot fetch the package lists of Debian $suite from $mirror"
	apt_quietly apt-get autoclean || true
}

# apt_private COMMAND ARG... runs apt-get, apt-cache or another of apt's programs for the suite.
apt_private() {
	local program=$1
	shift
	"$program" -q -c "$APT_DIR/etc/apt.conf" "$@" </dev/null
}

# apt_quietly PROGRAM ARG... does the same without its output, and shows the errors when it failed.
apt_quietly() {
	if ! apt_private "$@" >"$APT_DIR/log" 2>&1; then
		grep -E '^(E|W|Err|[[:space:]])' "$APT_DIR/log" | tail -n 20 >&2 || true
		return 1
	fi
}

# debian_closure PACKAGE... prints these packages and all that they depend on.
debian_closure() {
	local plan
	if ! plan=$(apt_private apt-get --simulate install "$@" 2>"$APT_DIR/log"); then
		cat "$APT_DIR/log" >&2
		printf '%s\n' "$plan" | tail -n 20 >&2
		die "apt cannot satisfy the dependencies of: $*"
	fi
	printf '%s\n' "$plan" | awk '$1 == "Inst" { print $2 }'
}

# debian_unpack DIR PACKAGE... downloads just these packages, and unpacks them into DIR.
debian_unpack() {
	local dir=$1 file files
	shift
	mkdir -p "$dir"
	(cd "$APT_DIR/archives" && apt_quietly apt-get download "$@") || die "cannot download these packages, or one of them: $*"
	files=$(apt_private apt-cache show --no-all-versions "$@" | awk -F ': ' '
		$1 == "Package" { p = $2 } $1 == "Version" { v = $2; gsub(/:/, "%3a", v) } $1 == "Architecture" { a = $2 }
		$0 == "" { print p "_" v "_" a ".deb" }')
	for file in $files; do
		dpkg-deb -x "$APT_DIR/archives/$file" "$dir" || die "cannot unpack $file"
	done
}

# with_suite SUITE COMMAND... runs COMMAND while nobody else uses the suite's lists and downloads.
with_suite() {
	local suite=$1
	shift
	mkdir -p "$LAB_CACHE/apt"
	(flock 8 && "$@" 8>&-) 8>"$LAB_CACHE/apt/$suite.lock"
}
