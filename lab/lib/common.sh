# shellcheck shell=bash
# What every script of the lab needs: messages, the cache, and the commands of the host.

# shellcheck disable=SC2034 # used by those who read this file
LAB_DIR=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
LAB_CACHE=${RDMANET_LAB_CACHE:-${XDG_CACHE_HOME:-${HOME:-/root}/.cache}/rdmanet-lab}

say() { echo "lab: $*" >&2; }
die() {
	echo "lab: $*" >&2
	exit 1
}

case $LAB_CACHE in
*[[:space:]]*) die "the cache's path must have no spaces in it: '$LAB_CACHE' (RDMANET_LAB_CACHE names another place)" ;;
/*) ;;
*) LAB_CACHE=$PWD/$LAB_CACHE ;;
esac

# need_host COMMAND:PACKAGE... installs the packages whose command, or file, the host lacks.
need_host() {
	local pair missing=()
	for pair; do
		[ -e "${pair%%:*}" ] || command -v "${pair%%:*}" >/dev/null 2>&1 || missing+=("${pair#*:}")
	done
	[ ${#missing[@]} -eq 0 ] && return
	[ "$(id -u)" = 0 ] || die "this host lacks: ${missing[*]}. Install them (apt-get install ${missing[*]}) or run as root."
	command -v apt-get >/dev/null 2>&1 || die "this host lacks: ${missing[*]}, and has no apt-get to install them with."
	say "installing on the host: ${missing[*]}"
	local log
	log=$(mktemp)
	# The timeout of the lock lets a package manager that is at work elsewhere finish first.
	if ! { apt-get -q -o APT::Update::Error-Mode=any update &&
		DEBIAN_FRONTEND=noninteractive apt-get -q -y -o DPkg::Lock::Timeout=300 \
			install --no-install-recommends "${missing[@]}"; } >"$log" 2>&1 </dev/null; then
		tail -n 30 "$log" >&2
		rm -f "$log"
		die "cannot install on the host: ${missing[*]}"
	fi
	rm -f "$log"
}

# cache_key WORD... -- FILE... prints the key of what is made from these words by these files.
cache_key() {
	local words=()
	while [ "$1" != -- ]; do
		words+=("$1")
		shift
	done
	shift
	{ printf '%s\n' "${words[@]}" && cat -- "$@"; } | sha256sum | cut -c1-16
}

# cached NAME KEY COMMAND... prints the directory NAME-KEY of the cache. Where it does not exist yet,
# COMMAND is called with an empty directory as its last argument, which becomes it once COMMAND has
# succeeded. A reader therefore never sees half of one, and of two builders one waits for the other.
cached() {
	local name=$1 key=$2
	shift 2
	local dir=$LAB_CACHE/$name-$key
	mkdir -p "$LAB_CACHE" || die "cannot make the cache $LAB_CACHE (RDMANET_LAB_CACHE names another place)"
	if [ ! -d "$dir" ]; then
		(
			flock 9
			[ -d "$dir" ] && exit 0
			# Whoever holds the lock is the only builder: what lies here was left by one that was killed.
			rm -rf "$LAB_CACHE/tmp.$name".*
			tmp=$(mktemp -d "$LAB_CACHE/tmp.$name.XXXXXX") || exit 1
			chmod 755 "$tmp"
			trap 'rm -rf "$tmp"' EXIT
			"$@" "$tmp" >&2 9>&- || exit 1
			mv -T "$tmp" "$dir" || exit 1
			# Other checkouts may still use another key; after a week without use it goes.
			find "$LAB_CACHE" -maxdepth 1 -type d -name "$name-*" -mtime +7 -exec rm -rf {} +
		) 9>"$LAB_CACHE/lock.$name" || return 1
	fi
	touch "$dir"
	echo "$dir"
}
