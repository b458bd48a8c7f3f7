#!/bin/sh
# Runs in the guest: the test binaries of /lab/tests, one after another, on each device of $SUITE_DEVICES.
# Prints what the tests print, and for each package the line that go test prints. The exit status says
# whether all of them passed.
# /lab/tests: binary, import path, directory, and whether the package needs a device (device, any).
# /lab/args: the arguments of the test binaries, one a line.

# shellcheck source=SCRIPTDIR/functions
. /functions

seconds() { cut -d' ' -f1 /proc/uptime; }

set --
while IFS= read -r arg; do set -- "$@" "$arg"; done </lab/args

failed=0
first=1
for device in $SUITE_DEVICES; do
	use_device "$device"
	echo "## $LAB_GUEST $device: Linux $(uname -r), $LAB_VERSIONS, $RDMANET_TEST_ADDR4 and $RDMANET_TEST_ADDR6"
	case " $LAB_DEVICES " in
	*" $device "*) ;;
	*)
		echo "lab: the device $device is missing in $LAB_GUEST"
		rdma link
		failed=1
		continue
		;;
	esac
	while IFS='	' read -r binary package dir needs; do
		[ "$needs" = device ] || [ $first = 1 ] || continue
		start=$(seconds)
		# The tests have a time limit of their own (-test.timeout), which shows where they hang. This
		# one is for a process in which not even that works.
		(cd "/tree/$dir" && exec timeout -k 10 "$SUITE_KILL_AFTER" "/lab/bin/$binary" "$@" </dev/null)
		status=$?
		took=$(awk -v a="$start" -v b="$(seconds)" 'BEGIN { printf "%.3fs", b - a }')
		if [ $status = 0 ]; then
			printf 'ok  \t%s\t%s\n' "$package" "$took"
		else
			[ $status = 1 ] || [ $status = 2 ] || echo "exit status $status"
			printf 'FAIL\t%s\t%s\n' "$package" "$took"
			failed=1
		fi
	done </lab/tests
	first=0
done
exit $failed
