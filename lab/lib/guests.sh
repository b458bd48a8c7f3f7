# shellcheck shell=bash disable=SC2034 # used by lab/run
# The guests, and what is put into them.

GUESTS="sid bookworm"

# Their RDMA devices; guest/devices says how each is made.
declare -A GUEST_DEVICES=([sid]="rxe0" [bookworm]="rxe0 siw0")

# guest_kernel GUEST prints the directory of its kernel: vmlinuz, modules.cpio, release.
guest_kernel() {
	local key
	key=$(cache_key "$1" -- "$LAB_DIR"/build/kernel.sh "$LAB_DIR"/build/siw.sh "$LAB_DIR"/lib/debian.sh)
	cached "kernel-$1" "$key" with_suite "$1" "$LAB_DIR/build/kernel.sh" "$1"
}

# guest_userland SUITE prints the directory of that suite's programs: root.cpio, versions.
guest_userland() {
	local key
	key=$(cache_key "$1" -- "$LAB_DIR"/build/userland.sh "$LAB_DIR"/lib/debian.sh)
	cached "userland-$1" "$key" with_suite "$1" "$LAB_DIR/build/userland.sh" "$1"
}
