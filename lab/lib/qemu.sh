# shellcheck shell=bash
# Booting a guest.

QEMU_PID=
FILTER_PID=

# boot GUEST KERNEL USERLAND ACCEL LIMIT RUN FILTER... boots with the directory RUN as /lab, which holds
# main, env and bin, and hands the guest's output to the command FILTER. The status is that of
# /lab/main; 124: the time limit; 125: the guest ended before its time. RUN/console has the kernel's messages.
boot() {
	local guest=$1 kernel=$2 userland=$3 accel=$4 limit=$5 run=$6 cpu clock=
	shift 6
	# The processors that qemu emulates share one time stamp counter, but Linux does not trust it unless it
	# is told to. Without it each look at the clock is a system call, and a device's registers are read for it.
	case $accel in kvm) cpu=host ;; *) cpu=max accel=tcg,thread=multi clock=tsc=reliable ;; esac
	rm -rf "$run/status" "$run/init" "$run/output"
	mkdir "$run/init"
	cp -R "$LAB_DIR"/guest/{init,devices,functions,etc} "$run/init/"
	(cd "$run/init" && find . | cpio --quiet -o -H newc -R 0:0 >"$run/init.cpio") || die "cannot make the guest's init"
	# The kernel unpacks one archive after another.
	cat "$userland/root.cpio" "$kernel/modules.cpio" "$run/init.cpio" >"$run/initrd"

	# qemu opens the fifo itself. It is given to its standard output, too, so that the filter sees the
	# end of a qemu that never came so far.
	mkfifo "$run/output"
	"$@" <"$run/output" &
	FILTER_PID=$!
	# setpriv: qemu does not outlive this script, however it ends. oops=panic: the guest ends with the
	# kernel's first fault, instead of going on with what it has left.
	setpriv --pdeathsig KILL timeout -k 5 "$limit" setpriv --pdeathsig KILL \
		qemu-system-x86_64 -accel "$accel" -cpu "$cpu" -smp "${RDMANET_LAB_CPUS:-2}" -m "${RDMANET_LAB_MEMORY:-4096}" \
		-nodefaults -no-user-config -display none -no-reboot -nic none \
		-kernel "$kernel/vmlinuz" -initrd "$run/initrd" \
		-append "console=ttyS0 loglevel=5 panic=-1 oops=panic mitigations=off $clock" \
		-serial "file:$run/console" \
		-device virtio-rng-pci \
		-device virtio-serial-pci -chardev "file,id=output,path=$run/output" -device virtserialport,chardev=output,name=output \
		-virtfs "local,path=$run,mount_tag=lab,security_model=none,multidevs=remap" \
		-virtfs "local,path=$(dirname "$LAB_DIR"),mount_tag=tree,security_model=none,readonly=on,multidevs=remap" \
		</dev/null >"$run/output" 2>"$run/qemu" &
	QEMU_PID=$!
	local status=0
	wait "$QEMU_PID" || status=$?
	QEMU_PID=
	wait "$FILTER_PID" || true
	FILTER_PID=
	rm -f "$run/initrd" "$run/init.cpio" "$run/output"

	if [ -s "$run/status" ]; then
		return "$(cat "$run/status")"
	fi
	case $status in
	124 | 137)
		say "the guest $guest did not finish within $limit s"
		return 124
		;;
	esac
	say "the guest $guest ended before its time (qemu's status $status)"
	cat "$run/qemu" >&2
	return 125
}

# boot_stop ends the guest that runs, and returns when nobody writes to its directory any more.
boot_stop() {
	local pid
	for pid in $QEMU_PID $FILTER_PID; do
		kill "$pid" 2>/dev/null || true
		wait "$pid" 2>/dev/null || true
	done
}

# choose_accel GUEST KERNEL USERLAND RUN sets ACCEL to kvm or tcg. That /dev/kvm is there does not mean
# that a kernel boots with it: a guest is booted once, and the answer kept until the host restarts.
choose_accel() {
	ACCEL=${RDMANET_LAB_ACCEL:-auto}
	case $ACCEL in
	kvm | tcg) return ;;
	auto) ;;
	*) die "RDMANET_LAB_ACCEL is kvm, tcg or auto, not '$ACCEL'" ;;
	esac
	ACCEL=tcg
	[ -r /dev/kvm ] && [ -w /dev/kvm ] || return 0
	local answer
	answer=$LAB_CACHE/accel-$(cache_key "$2" -- /proc/sys/kernel/random/boot_id "$(command -v qemu-system-x86_64)")
	if [ ! -e "$answer" ]; then
		mkdir -p "$4/bin"
		echo "" >"$4/env"
		printf '#!/bin/sh\nexec true\n' >"$4/main"
		chmod +x "$4/main"
		if boot "$1" "$2" "$3" kvm 20 "$4" cat >/dev/null 2>&1; then ACCEL=kvm; else say "KVM does not boot a kernel here: emulating"; fi
		find "$LAB_CACHE" -maxdepth 1 -name 'accel-*' -mtime +7 -delete
		echo $ACCEL >"$answer"
	fi
	ACCEL=$(cat "$answer")
}
