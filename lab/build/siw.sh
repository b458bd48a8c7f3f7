#!/bin/bash
# usage: siw.sh WORKDIR RELEASE MODULEDIR
# Builds siw.ko (Soft-iWARP) for bookworm's kernel RELEASE: Debian does not enable it, but ships the source.
# The caller has prepared apt (debian_apt bookworm) and holds the suite's lock. Nothing is installed
# on the host but a compiler and make, where they are missing.
set -euo pipefail
# shellcheck source=SCRIPTDIR/../lib/common.sh
. "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/../lib/common.sh"
# shellcheck source=SCRIPTDIR/../lib/debian.sh
. "$LAB_DIR/lib/debian.sh"

work=$1 release=$2 moduledir=$3
apt_dir bookworm

say "building siw.ko for Linux $release"
need_host gcc:gcc make:make xz:xz-utils
packages=$(debian_closure "linux-headers-$release" | grep -E '^linux-(headers-[0-9]|kbuild-)') ||
	die "no headers of Linux $release"
# shellcheck disable=SC2086 # a list
debian_unpack "$work/headers" $packages
debian_unpack "$work/source" linux-source-6.1

mkdir -p "$work/siw" "$moduledir"
tar -xf "$work/source/usr/src/linux-source-6.1.tar.xz" -C "$work/siw" --strip-components=5 \
	linux-source-6.1/drivers/infiniband/sw/siw
# The headers' makefile names the place where the package would have been installed.
headers=$work/headers/usr/src/linux-headers-$release
sed -i "s|/usr/src/|$work/headers/usr/src/|" "$headers/Makefile"
if ! make -j2 -C "$headers" M="$work/siw" CC=gcc CONFIG_RDMA_SIW=m modules >"$work/log" 2>&1; then
	tail -n 30 "$work/log" >&2
	die "siw.ko does not build"
fi
strip --strip-debug -o "$moduledir/siw.ko" "$work/siw/siw.ko"
