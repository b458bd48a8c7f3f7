#!/bin/bash
# usage: userland.sh SUITE DIR
# Makes DIR/root.cpio, a root file system with the RDMA programs and libraries of a Debian suite, and
# DIR/versions.
set -euo pipefail
# shellcheck source=SCRIPTDIR/../lib/common.sh
. "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/../lib/common.sh"
# shellcheck source=SCRIPTDIR/../lib/debian.sh
. "$LAB_DIR/lib/debian.sh"

suite=$1 out=$2
root=$out/root

# coreutils and findutils go before what busybox has of the kind: its timeout, env and xargs run its own nc
# and ip instead of those in PATH.
programs="busybox-static dash bash coreutils findutils libc-bin netbase iproute2 netcat-openbsd strace
	rdmacm-utils ibverbs-utils ibverbs-providers perftest libgcc-s1"
# Dependencies that only a package manager or a running system has use for.
unused="systemd|libsystemd-shared|perl-base|debconf|adduser|passwd|libpam-modules|libpam-modules-bin|libc-gconv-modules-extra|pci.ids|openssl-provider-legacy"

say "building the userland of $suite"
need_host cpio:cpio
debian_apt "$suite"
# shellcheck disable=SC2086 # lists
packages=$(debian_closure $programs | grep -vxE "$unused")
# shellcheck disable=SC2086 # a list
debian_unpack "$root" $packages
# Packages from before the merge of / and /usr bring directories of their own at the root.
for d in bin sbin lib lib64; do
	mkdir -p "$root/usr/$d"
	[ ! -d "$root/$d" ] || [ -L "$root/$d" ] || cp -a "$root/$d/." "$root/usr/$d/"
	rm -rf "${root:?}/$d"
	ln -s "usr/$d" "$root/$d"
done

# libgcc_s.so.1 is loaded by pthread_exit, which no dependency of rdmacm-utils says.
for f in bin/{busybox,bash,dash,timeout,ip,nc.openbsd,strace,rping,rstream,riostream,ucmatose,cmtime,ib_write_bw,ibv_devinfo} sbin/tc \
	lib/x86_64-linux-gnu/{libgcc_s.so.1,librdmacm.so.1,libibverbs.so.1,rsocket/librspreload.so}; do
	[ -e "$root/$f" ] || die "the userland of $suite lacks $f"
done
rm -rf "${root:?}"/usr/share "${root:?}"/var "$root"/usr/lib/{systemd,udev,tmpfiles.d,sysusers.d} \
	"$root"/usr/lib/x86_64-linux-gnu/{gconv,security,perl*}
mkdir -p "$root"/{proc,sys,dev,tmp,run,root,var,lab,tree}
ln -s ../run "$root/var/run"
ln -sfn dash "$root/usr/bin/sh"
ln -sfn nc.openbsd "$root/usr/bin/nc"
applets=$("$root/usr/bin/busybox" --list)
for applet in $applets; do
	[ -e "$root/usr/bin/$applet" ] || [ -e "$root/usr/sbin/$applet" ] ||
		ln -s busybox "$root/usr/bin/$applet"
done

apt_private apt-cache show --no-all-versions "$(grep -E '^librdmacm1' <<<"$packages")" |
	awk -v s="$suite" '$1 == "Version:" { print "librdmacm " $2 " of " s; exit }' >"$out/versions"
(cd "$root" && find . | LC_ALL=C sort | cpio --quiet -o -H newc -R 0:0) >"$out/root.cpio"
rm -rf "$root"
