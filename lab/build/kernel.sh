#!/bin/bash
# usage: kernel.sh SUITE DIR
# Makes DIR/vmlinuz, DIR/modules.cpio and DIR/release of the newest kernel of a Debian suite, with the
# modules that a guest loads.
set -euo pipefail
# shellcheck source=SCRIPTDIR/../lib/common.sh
. "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/../lib/common.sh"
# shellcheck source=SCRIPTDIR/../lib/debian.sh
. "$LAB_DIR/lib/debian.sh"

suite=$1 out=$2
work=$out/work

# The first are needed; a kernel may do without the others (it has them built in, or does not know them).
needed="ib_uverbs rdma_ucm rdma_rxe dummy veth sch_netem virtio_pci virtio_console virtio_rng 9p 9pnet_virtio"
wanted="siw ib_umad sch_tbf crc32c_generic crc32_generic crc32c_intel crc32_pclmul inet_diag tcp_diag"

say "building the kernel of $suite"
need_host cpio:cpio depmod:kmod xz:xz-utils
debian_apt "$suite"
packages=$(debian_closure linux-image-amd64 | grep -E '^linux-(image|base|binary|modules)-[0-9]') ||
	die "linux-image-amd64 of $suite depends on no kernel"
# shellcheck disable=SC2086 # a list
debian_unpack "$work/kernel" $packages

# A suite before the merge of / and /usr has /lib/modules; modprobe and depmod look for lib/modules.
[ -d "$work/kernel/lib" ] || ln -s usr/lib "$work/kernel/lib"
release=$(ls "$work/kernel/lib/modules")
for vmlinuz in "$work/kernel/boot/vmlinuz-$release" "$work/kernel/lib/modules/$release/vmlinuz"; do
	[ ! -e "$vmlinuz" ] || cp "$vmlinuz" "$out/vmlinuz"
done
[ -e "$out/vmlinuz" ] || die "no vmlinuz in: $packages"

if [ "$suite" = bookworm ]; then
	"$LAB_DIR/build/siw.sh" "$work/siw" "$release" "$work/kernel/lib/modules/$release/extra"
fi

depmod -b "$work/kernel" "$release"
files=$(
	for module in $needed $wanted; do
		# A line is "insmod FILE [OPTION...]", or "builtin NAME".
		if steps=$(modprobe -d "$work/kernel" -S "$release" --ignore-install --show-depends "$module" 2>/dev/null); then
			awk '$1 == "insmod" { print $2 }' <<<"$steps"
		elif [[ " $needed " == *" $module "* ]]; then
			die "Linux $release of $suite has no module $module"
		fi
	done | sort -u
)
modules=$work/modules/usr/lib/modules/$release
for file in $files; do
	target=$modules/${file#*/"$release"/}
	mkdir -p "${target%/*}"
	case $file in
	*.xz) xz -dc "$file" >"${target%.xz}" ;;
	*) cp "$file" "$target" ;;
	esac
done
cp "$work/kernel/lib/modules/$release"/modules.{order,builtin*} "$modules/"
ln -s usr/lib "$work/modules/lib"
depmod -b "$work/modules" "$release"
rm "$work/modules/lib"
(cd "$work/modules" && find . | LC_ALL=C sort | cpio --quiet -o -H newc -R 0:0) >"$out/modules.cpio"

echo "$release" >"$out/release"
rm -rf "$work"
