#!/bin/sh
# kernel.sh OUTDIR [WORK]: the guest kernel, taken from Debian's package.
#
# Downloads the package that linux-image-cloud-amd64 stands for, unpacks it
# beside (never onto) the host, and writes
#   OUTDIR/vmlinux          uncompressed, with the PVH entry QEMU boots directly
#   OUTDIR/modules/*.ko     only what the guest needs, uncompressed
#   OUTDIR/modules.list     file names in load order, one a line
#   OUTDIR/version          kernel release (uname -r), package version
#   OUTDIR/wanted           the modules that were asked for
#   OUTDIR/SHA256SUMS       of all of the above
# OUTDIR appears whole or not at all. Run again: keeps an OUTDIR that is
# complete and current, replaces any other. Needs apt, dpkg, coreutils, and the
# decompressor the kernel was packed with (lz4 for Debian 12, zstd for 13).
# WORK is where it works, on OUTDIR's file system; nobody but root may write there,
# nor move what is in it or in OUTDIR's folder. Default: that folder.
# Progress goes to stderr as "progress PERCENT WHAT".
set -eu
LC_ALL=C
export LC_ALL
umask 022

META=${HUTCH_KERNEL_PACKAGE:-linux-image-cloud-amd64}
WANTED="virtio virtio_ring virtio_mmio virtio_blk virtio_console failover net_failover virtio_net
scsi_common scsi_mod virtio_scsi sd_mod overlay fuse"

progress() { echo "progress $*" >&2; }
die() { echo "kernel.sh: $*" >&2; exit 1; }

[ $# -eq 1 ] || [ $# -eq 2 ] || die "usage: kernel.sh OUTDIR [WORK]"
out=$1
case $out in */) out=${out%/} ;; esac
parent=$(dirname -- "$out")
mkdir -p -- "$parent"
work=${2-$parent}

# Root writes below these by name: whoever could rename a folder there would
# choose what is written where. What is sticky keeps root's own in place.
if [ "$(id -u)" = 0 ]; then
    for folder in "$parent" "$work"; do
        [ ! -L "$folder" ] || [ "$folder" = "$parent" ] || die "$folder is a link"
        case $(stat -L -c '%u %A' -- "$folder") in
        '0 d'????[!w]??[!w]? | '0 d'????????[tT]) ;;
        *) die "$folder must belong to root and be closed to others" ;;
        esac
    done
fi

tmp=$(mktemp -d "$work/.kernel-XXXXXX")
cleanup() { rm -rf -- "$tmp"; }
trap cleanup EXIT
trap 'exit 1' HUP INT TERM
chmod 755 "$tmp"

# Versions that panic in ordinary use; the next older one that apt knows is taken.
# 6.1.192-1: ext4 follows a NULL pointer when the kernel runs short of memory (ext4_mb_load_buddy_gfp).
BROKEN=" 6.1.192-1 "

# The meta package depends on exactly one real image. Newest first; if all are broken, the newest.
resolve() {
    apt-cache show "$META" 2>/dev/null | awk -v broken="$BROKEN" '
        /^Version: / { version = $2 }
        /^Depends: / && match($0, /linux-image-[0-9][^ ,]*/) {
            pkg = substr($0, RSTART, RLENGTH)
            if (first == "") first = pkg
            if (best == "" && !index(broken, " " version " ")) best = pkg
        }
        END { if (best != "" || first != "") print best != "" ? best : first }'
}
progress 5 "looking up $META"
pkg=$(resolve)
if [ -z "$pkg" ]; then
    progress 8 "updating the package lists"
    apt-get -qq update >&2 || die "apt-get update failed; check the network and /etc/apt"
    pkg=$(resolve)
fi
[ -n "$pkg" ] || die "apt does not know the package $META; is this Debian with its main archive?"
pkgver=$(apt-cache show --no-all-versions "$pkg" | sed -n 's/^Version: //p' | head -n 1)
release=${pkg#linux-image-}
release=${release%-unsigned}

up_to_date() { # an OUTDIR of this very version, all sums right
    [ -f "$1/SHA256SUMS" ] && [ -f "$1/version" ] &&
        [ "$(sed -n 1p "$1/version")" = "$release" ] && [ "$(sed -n 2p "$1/version")" = "$pkgver" ] &&
        [ "$(cat "$1/wanted" 2>/dev/null)" = "$WANTED" ] &&
        (cd "$1" && sha256sum --quiet --strict -c SHA256SUMS) >/dev/null 2>&1
}
if up_to_date "$out"; then
    progress 100 "kernel $release ($pkgver) is already there"
    exit 0
fi

progress 15 "downloading $pkg $pkgver"
mkdir "$tmp/deb"
# apt fetches as its own user when it can; as root it would only warn.
if id _apt >/dev/null 2>&1; then chown _apt "$tmp/deb" 2>/dev/null || :; fi
(cd "$tmp/deb" && apt-get -qq download "$pkg=$pkgver") >&2 ||
    { apt-get -qq update >&2 && (cd "$tmp/deb" && apt-get -qq download "$pkg") >&2; } || die "could not download $pkg"
deb=$(find "$tmp/deb" -name '*.deb' | head -n 1)
[ -n "$deb" ] || die "apt-get download produced no package"

progress 45 "unpacking"
mkdir "$tmp/root" "$tmp/new" "$tmp/new/modules"
dpkg-deb -x "$deb" "$tmp/root"
bz=$(find "$tmp/root/boot" -name 'vmlinuz-*' | head -n 1)
[ -n "$bz" ] || die "$pkg contains no boot/vmlinuz"
release=${bz##*/vmlinuz-}

# bzImage: Documentation/x86/boot.rst. setup_sects at 0x1f1, "HdrS" at 0x202,
# payload_offset and payload_length at 0x248, relative to the protected-mode code.
progress 60 "extracting vmlinux"
byte() { od -An -tu1 -j "$1" -N 1 "$bz" | tr -d ' '; }
le32() { od -An -tu4 -j "$1" -N 4 "$bz" | tr -d ' '; }
[ "$(dd if="$bz" bs=1 skip=514 count=4 2>/dev/null)" = HdrS ] || die "vmlinuz is not a bzImage"
sects=$(byte 497)
[ "$sects" -ne 0 ] || sects=4
start=$(((sects + 1) * 512 + $(le32 584)))
length=$(le32 588)
[ "$length" -gt 4096 ] || die "vmlinuz has no payload"
# All but gzip append the 4-byte unpacked size.
payload() { dd if="$bz" bs=1M iflag=skip_bytes,count_bytes skip="$start" count=$((length - $1)) status=none; }
need() { command -v "$1" >/dev/null 2>&1 || die "this kernel is compressed with $1; install the package $2"; }
magic=$(od -An -tx1 -j "$start" -N 6 "$bz" | tr -d ' \n')
case $magic in
02214c18*) need lz4 lz4; payload 4 | lz4 -dcq - >"$tmp/new/vmlinux" ;;
28b52ffd*) need zstd zstd; payload 4 | zstd -dcq - >"$tmp/new/vmlinux" ;;
fd377a585a00) need xz xz-utils; payload 4 | xz -dcq - >"$tmp/new/vmlinux" ;;
1f8b*) payload 0 | gzip -dcq >"$tmp/new/vmlinux" ;;
425a68*) need bzip2 bzip2; payload 4 | bzip2 -dcq >"$tmp/new/vmlinux" ;;
7f454c46*) payload 0 >"$tmp/new/vmlinux" ;;
*) die "vmlinuz has an unknown compression (starts with $magic)" ;;
esac
[ "$(od -An -tx1 -N 4 "$tmp/new/vmlinux" | tr -d ' \n')" = 7f454c46 ] || die "the payload of vmlinuz is not an ELF kernel"

# Modules in dependency order. A module names what it needs in its .modinfo
# section ("depends=a,b"), so neither depmod nor its files are needed.
progress 75 "collecting modules"
mods=$tmp/root/lib/modules/$release
[ -d "$mods" ] || mods=$tmp/root/usr/lib/modules/$release
[ -d "$mods" ] || die "$pkg contains no modules for $release"
(cd "$mods" && find . -name '*.ko*') >"$tmp/all"
builtin=$mods/modules.builtin
: >"$tmp/new/modules.list"

find_module() { # name with _ or -
    pat=$(printf %s "$1" | sed 's/[-_]/[-_]/g')
    grep -E "/$pat\.ko(\.(xz|gz|zst))?\$" "$tmp/all" | head -n 1
}
add() {
    name=$(printf %s "$1" | tr - _)
    if grep -qxF "$name.ko" "$tmp/new/modules.list"; then return 0; fi
    rel=$(find_module "$name")
    if [ -z "$rel" ]; then
        pat=$(printf %s "$name" | sed 's/[-_]/[-_]/g')
        if [ -f "$builtin" ] && grep -qE "/$pat\.ko\$" "$builtin"; then return 0; fi
        die "$pkg has no module $name"
    fi
    ko=$tmp/new/modules/$name.ko
    case $rel in
    *.ko) cp "$mods/$rel" "$ko" ;;
    *.xz) need xz xz-utils; xz -dc "$mods/$rel" >"$ko" ;;
    *.gz) gzip -dc "$mods/$rel" >"$ko" ;;
    *.zst) need zstd zstd; zstd -dcq "$mods/$rel" >"$ko" ;;
    esac
    for dep in $(tr '\0' '\n' <"$ko" | sed -n 's/^depends=//p' | tr ',' ' '); do
        (add "$dep") || exit 1 # a subshell keeps our variables
    done
    printf '%s.ko\n' "$(printf %s "$1" | tr - _)" >>"$tmp/new/modules.list"
}
for m in $WANTED; do add "$m"; done

printf '%s\n%s\n' "$release" "$pkgver" >"$tmp/new/version"
printf '%s\n' "$WANTED" >"$tmp/new/wanted"
chmod 644 "$tmp"/new/modules/*.ko "$tmp/new/vmlinux" "$tmp/new/modules.list" "$tmp/new/version" "$tmp/new/wanted"
progress 90 "hashing"
(cd "$tmp/new" && sha256sum version wanted modules.list vmlinux modules/*.ko >SHA256SUMS)

progress 95 "publishing"
sync -f "$tmp/new/SHA256SUMS" 2>/dev/null || :
if [ -e "$out" ]; then
    mv -T -- "$out" "$tmp/old" # a rename cannot replace a directory that is not empty
fi
mv -T -- "$tmp/new" "$out"
progress 100 "kernel $release ($pkgver)"
