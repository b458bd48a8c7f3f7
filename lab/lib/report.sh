# shellcheck shell=bash
# What is shown of a guest's run.

# show_results LOG passes a guest's output on without the lines that say which test runs, and keeps all
# of it in LOG. show_all LOG passes everything on.
show_results() { tee "$1" | grep --line-buffered -vaE '^=== (RUN|PAUSE|CONT|NAME) '; }
show_all() { exec tee "$1"; }

# judge STATUS LOG GUEST DEVICE... says how many tests passed on each device. It returns STATUS, or 1
# if that was 0 and on one of the devices no test ran.
judge() {
	local status=$1 log=$2 guest=$3 device passed failed skipped packages
	shift 3
	for device; do
		read -r passed failed skipped packages < <(awk -v heading="## $guest $device:" '
			/^## / { here = index($0, heading) == 1 }
			here && /^ *--- PASS: / { passed++ }
			here && /^ *--- FAIL: / { failed++ }
			here && /^ *--- SKIP: / { skipped++ }
			here && /^FAIL\t/ { packages = packages " " $2 }
			END { print passed + 0, failed + 0, skipped + 0 packages }' "$log")
		say "$guest $device: $passed passed, $failed failed, $skipped skipped${packages:+; failed: $packages}"
		if [ $((passed + failed)) = 0 ]; then
			say "$guest $device: NO TEST RAN"
			[ "$status" != 0 ] || status=1
		fi
	done
	return "$status"
}

# show_complaints GUEST CONSOLE shows what the kernel has to complain about, and keeps its messages.
show_complaints() {
	local kept=$LAB_CACHE/log/$1.console
	if grep -aE 'WARNING:|BUG:|Oops|Kernel panic|blocked for more than' "$2" >&2; then
		say "the kernel of $1 complained (above): see $kept"
	fi
	mv "$2" "$kept"
}
