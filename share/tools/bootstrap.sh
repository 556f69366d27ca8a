#!/bin/sh
# bootstrap.sh VARIANT HOME: build a Debian 12 root file system with mmdebstrap.
#
#   stdout  the tree as one tar stream (feeds hutch-untar)
#   stderr  lines: "progress <percent> <text>", then "error <code> <message>"
#           if it fails. The full log is HOME/root-cache/apt/bootstrap-VARIANT.log
#
# Runs as root. The packages are those of share/recipes/base.packages plus
# share/recipes/VARIANT.packages. Package sources are the host's own Debian
# entries, as apt itself understands them: no mirror is named here. They are
# used with Debian's archive keyring only, so an entry that merely looks like
# Debian's fails its signature check.
#
# HOME/root-cache/apt keeps the downloaded .debs between runs. Everything
# temporary is one directory in it, removed on every exit; what a SIGKILL left
# behind is removed by the next run.
# shellcheck disable=SC2016  # $(FIELD) is apt's syntax, "$1" is expanded by the hook's shell
# shellcheck disable=SC2016  # $(FIELD) is apt's syntax and "$1" is the hook's
set -eu
umask 022
export LC_ALL=C.UTF-8 PATH=/usr/sbin:/usr/bin:/sbin:/bin
unset IFS TMPDIR APT_CONFIG || :

suite=bookworm
keyring=/usr/share/keyrings/debian-archive-keyring.gpg

fail() { # code message
    echo "error $1 $2" >&2
    exit 1
}

# ---- hooks: mmdebstrap calls this script back with the root it is building ----------------------------------------

# Before the first download: known .debs by hard link, so apt finds them in
# place, and the man directories, empty: postinst scripts of Java and others
# fail when they cannot put an alternative there.
hook_setup() {
    mkdir -p "$1/var/cache/apt/archives" "$1/usr/share/man/man1" "$1/usr/share/man/man7" "$1/usr/share/man/man8"
    find "$HUTCH_DEBS" -maxdepth 1 -type f -name '*.deb' -exec ln -t "$1/var/cache/apt/archives" {} +
}

# After the last download: keep the .debs, drop older versions of the same package.
keep_debs() {
    for deb in "$1"/var/cache/apt/archives/*.deb; do
        [ -f "$deb" ] || continue
        name=${deb##*/}
        [ -e "$HUTCH_DEBS/$name" ] && continue
        rm -f "$HUTCH_DEBS/${name%%_*}"_*.deb
        ln "$deb" "$HUTCH_DEBS/$name"
    done
}

# The programs of code contexts, where hutchd looks for them (core/kernels.c
# names the folder by the same bytes), compiled as far as that can be done.
add_kernels() {
    kernels=${HUTCH_BOOTSTRAP%/*}/../kernels
    files=$(cd "$kernels" && find . -type f ! -path '*/.*' ! -path '*/__pycache__/*' ! -name README.md | LC_ALL=C sort)
    hash=$(cd "$kernels" && for f in $files; do printf '%s\n' "$f" && cat "$f"; done | sha256sum | cut -c1-16)
    to=/usr/lib/hutch/kernels/$hash
    for f in $files; do
        install -D -m 0644 "$kernels/$f" "$1$to/$f"
    done
    chroot "$1" python3 -m compileall -q --invalidation-mode unchecked-hash "$to/python"
    [ ! -x "$1/usr/bin/javac" ] || chroot "$1" javac -nowarn -d "$to/java/classes" "$to/java/Kernel.java"
}

# Where pip and npm go when nobody tells them otherwise, for network presets on
# hosts that have neither (presets.sh).
note_defaults() {
    at=$(mktemp -d "$1/tmp/note.XXXXXX")
    rm -f "$HUTCH_DEBS/defaults.new"
    set -C # a link that somebody puts there meanwhile is not followed
    {
        pip=$(chroot "$1" env -i PATH=/usr/bin:/bin python3 -B -c 'from pip._internal.models.index import PyPI; print(PyPI.simple_url)' 2>/dev/null) && echo "pip $pip"
        npm=$(chroot "$1" env -i PATH=/usr/bin:/bin HOME="/tmp/${at##*/}" npm --logs-max=0 config get registry 2>/dev/null) && echo "npm $npm"
    } >"$HUTCH_DEBS/defaults.new" || :
    set +C
    rm -rf --one-file-system "$at"
    if [ -s "$HUTCH_DEBS/defaults.new" ]; then mv "$HUTCH_DEBS/defaults.new" "$HUTCH_DEBS/defaults"; else rm -f "$HUTCH_DEBS/defaults.new"; fi
}

hook_customize() {
    root=$1
    keep_debs "$root"
    note_defaults "$root"

    chroot "$root" useradd --create-home --uid 1000 --user-group --shell /bin/bash --groups sudo user
    echo 'user ALL=(ALL) NOPASSWD: ALL' >"$root/etc/sudoers.d/user"
    chmod 0440 "$root/etc/sudoers.d/user"
    mkdir -p "$root/code"
    chmod 0777 "$root/code"
    find "$root/usr/local" -type d -exec chmod 0777 {} +

    add_kernels "$root"

    echo 'LANG=C.UTF-8' >"$root/etc/default/locale"
    # A login shell keeps the PATH it was given and starts no process to find out who it is; many clients start one per command.
    sed -i '/^if \[ "$(id -u)" -eq 0 \]; then$/,/^fi$/d' "$root/etc/profile"
    # A sandbox is its own environment: `pip install` must simply work in it.
    printf '[global]\nbreak-system-packages = true\n' >"$root/etc/pip.conf"
    # Nothing of the building host stays: its name, resolver, proxy, credentials, identity, logs.
    echo hutch >"$root/etc/hostname"
    printf '127.0.0.1 localhost hutch\n::1 localhost ip6-localhost ip6-loopback\n' >"$root/etc/hosts"
    rm -f "$root/etc/resolv.conf" "$root/etc/apt/apt.conf.d/99mmdebstrap"
    : >"$root/etc/resolv.conf"
    : >"$root/etc/machine-id"
    cat "$root"/etc/apt/sources.list.d/*.list | sed 's#://[^/@]*@#://#' >"$root/etc/apt/sources.list"
    rm -f "$root"/etc/apt/sources.list.d/*.list
    mv "$root/etc/dpkg/dpkg.cfg.d/99mmdebstrap" "$root/etc/dpkg/dpkg.cfg.d/hutch"
    sed -i '/^force-unsafe-io$/d' "$root/etc/dpkg/dpkg.cfg.d/hutch"
    rm -f "$root"/etc/ssh/ssh_host_* "$root/var/lib/systemd/random-seed" "$root/var/lib/urandom/random-seed" \
        "$root/usr/sbin/policy-rc.d" "$root"/var/lib/dpkg/*-old "$root"/var/cache/debconf/*-old "$root"/etc/*-
    find "$root/var/log" -type f -delete
}

case ${1-} in
--hook)
    "hook_$2" "$3"
    exit 0
    ;;
esac

# ---- arguments and places -----------------------------------------------------------------------------------------

[ $# -eq 2 ] || fail invalid "usage: bootstrap.sh VARIANT HOME"
variant=$1 home=$2
case $variant in '' | -* | *[!a-z0-9-]*) fail invalid "template variant is not a valid name" ;; esac
[ "$(id -u)" = 0 ] || fail denied "bootstrap needs root"
self=$(readlink -f "$0")
recipes=${self%/*}/../recipes
[ -r "$recipes/$variant.packages" ] || fail not_found "no package list for template variant $variant"
command -v mmdebstrap >/dev/null || fail unavailable "mmdebstrap is not installed"
[ -r "$keyring" ] || fail unavailable "the package debian-archive-keyring is not installed"

# Apt runs what its configuration says and trusts a cached .deb without hashing
# it again, so nobody but root may be able to put anything here, or to rename a
# folder on the way: each is root's, and closed to others or sticky (HOME, where
# the daemon may add files of its own but not touch those of root).
roots() { # FOLDER: what is in it stays as root left it
    case $(stat -c '%u %A' -- "$1") in
    '0 d'????[!w]??[!w]? | '0 d'????????[tT]) ;;
    *) fail denied "${1##*/} must belong to root and be closed to others: hutchd sees to that when it starts" ;;
    esac
}
cd -P "$home"
roots "$PWD"
for folder in root-cache apt; do
    if [ ! -d "$folder" ] || [ -L "$folder" ]; then mkdir -m 0711 "$folder"; fi
    cd -P "$folder"
    roots "$PWD"
done
chmod 0700 .
cache=$PWD

(umask 077 && : >>"$cache/lock")
chmod 0600 "$cache/lock"
exec 9>"$cache/lock"
flock -n 9 || { echo "progress 0 waiting for another bootstrap" >&2 && flock 9; }
rm -rf --one-file-system "$cache"/tmp.*
tmp=$(mktemp -d "$cache/tmp.XXXXXX")
pid='' filter=''
cleanup() {
    trap '' INT TERM HUP
    [ -z "$pid" ] || kill -KILL "$pid" 2>/dev/null || :
    [ -z "$filter" ] || wait "$filter" || : # ends when the last writer of the log is gone
    rm -rf --one-file-system "$tmp"
}
trap cleanup EXIT
trap 'fail canceled "bootstrap was interrupted"' INT TERM HUP

# ---- what the host's apt knows ------------------------------------------------------------------------------------

# One line per (site, suite) of Debian's own main archive, updates and security;
# hosts on another Debian release use the same sites with our suite's name.
apt-get indextargets --format '$(ORIGIN)|$(RELEASE)|$(COMPONENT)|$(REPO_URI)' 'Created-By: Packages' >"$tmp/targets"
awk -F'|' -v suite="$suite" -v keyring="$keyring" '
    $3 != "main" || ($1 != "Debian" && $1 != "" && $1 !~ /^\$/) { next }
    !match($2, /^(bullseye|bookworm|trixie|forky|duke|(old)*stable|testing)/) { next }
    {
        kind = substr($2, RLENGTH + 1)
        if (kind == "/updates") kind = "-security"
        if (kind != "" && kind != "-updates" && kind != "-security") next
        line = "deb [signed-by=" keyring "] " $4 " " suite kind " main"
        if (!seen[line]++) print line
    }' "$tmp/targets" >"$tmp/sources.list"
grep -q " $suite main\$" "$tmp/sources.list" ||
    fail unavailable "this host's apt has no Debian package source; add one and run apt-get update"

# How the host reaches them (proxy, certificates, retries), for the build only.
apt-config dump | grep -E '^Acquire::((http|https|tor)(::|-)|Retries |ForceIPv|Check-Valid-Until )' >"$tmp/apt.conf" || :
[ ! -e /etc/apt/auth.conf ] || echo 'Dir::Etc::netrc "/etc/apt/auth.conf";' >>"$tmp/apt.conf"
echo 'Dir::Etc::netrcparts "/etc/apt/auth.conf.d";' >>"$tmp/apt.conf"
echo 'Acquire::Languages "none";' >>"$tmp/apt.conf"

cat >"$tmp/dpkg.conf" <<'EOF'
force-unsafe-io
path-exclude=/usr/share/man/*
path-exclude=/usr/share/info/*
path-exclude=/usr/share/groff/*
path-exclude=/usr/share/lintian/*
path-exclude=/usr/share/linda/*
path-exclude=/usr/share/locale/*
path-exclude=/usr/share/doc/*
path-include=/usr/share/doc/*/copyright
path-include=/usr/share/locale/locale.alias
EOF

packages=$(cat "$recipes/base.packages" "$recipes/$variant.packages" | sed 's/#.*//' | tr -s ' \t\n' '\n' | sort -u | paste -sd, - | sed 's/^,//')

# ---- build --------------------------------------------------------------------------------------------------------

# Percentages count real events in apt's and dpkg's output: index files, then
# packages fetched, unpacked and configured, out of the totals apt announced.
mkfifo "$tmp/log"
perl -e '
    use strict; use warnings; $| = 1;
    my ($log) = @ARGV; open(my $out, ">", $log) or die; select((select($out), $| = 1)[0]);
    # phase: [start %, end % of fetching, end % of installing]
    my @phase = ([3, 7, 20], [20, 30, 93]);
    my ($p, $total, $got, $done, $last, $err) = (0, 1, 0, 0, -1, "");
    sub at { my ($pc, $text) = @_; $pc = int($pc); return if $pc <= $last; $last = $pc; print STDERR "progress $pc $text\n" }
    while (my $l = <STDIN>) {
        print $out $l; chomp $l;
        if ($l =~ /^I: running apt-get update/) { at(0, "reading package lists") }
        elsif ($l =~ /^I: downloading packages/) { at(3, "choosing packages") }
        elsif ($l =~ /^I: installing remaining/) { $p = 1; ($got, $done, $total) = (0, 0, 1); at(20, "choosing packages") }
        elsif ($l =~ /^0 upgraded, (\d+) newly installed/) { $total = $1 || 1 }
        elsif ($l =~ /^Get:\d+ \S+ \S+ \S+ (\S+) \S+ \S+ \[/) {
            next if $total <= 1; $got++;
            my ($a, $b) = @{$phase[$p]}[0, 1]; at($a + ($b - $a) * ($got > $total ? 1 : $got / $total), "fetching $1")
        }
        elsif ($l =~ /^(Unpacking|Setting up) ([^ :]+)/) {
            $done++; my ($a, $b) = @{$phase[$p]}[1, 2]; my $f = $done / (2 * $total);
            at($a + ($b - $a) * ($f > 1 ? 1 : $f), ($1 eq "Unpacking" ? "unpacking" : "configuring") . " $2")
        }
        elsif ($l =~ /^I: running --customize-hook/) { at(93, "adding the user") }
        elsif ($l =~ /^I: creating tarball/) { at(95, "packing") }
        elsif ($l =~ /^I: done/) { at(100, "done") }
        elsif ($l =~ /^dpkg: error processing (?:package|archive) (\S+)/ && $err eq "") { $err = "installing $1 failed" }
        elsif ($l =~ /^E: (.*)/ && $err eq "") { $err = $1 }
    }
    $err =~ s#/\S*/##g; print STDERR "error unavailable ", substr($err, 0, 200), "\n" if $err ne "";
' "$cache/bootstrap-$variant.log" <"$tmp/log" 9>&- &
filter=$!

export HUTCH_BOOTSTRAP="$self" HUTCH_DEBS="$cache"
# In a PID namespace of its own, so that one kill takes every apt, dpkg and
# maintainer script along; mmdebstrap by itself waits for them instead.
TMPDIR=$tmp setpriv --pdeathsig KILL unshare --pid --mount --fork --kill-child --mount-proc mmdebstrap --verbose --mode=root --variant=minbase --architectures=amd64 --format=tar \
    --skip=check/signed-by,download/empty,essential/unlink \
    --include="$packages" --aptopt="$tmp/apt.conf" --aptopt='Apt::Install-Recommends "false"' \
    --dpkgopt="$tmp/dpkg.conf" \
    --setup-hook='exec sh "$HUTCH_BOOTSTRAP" --hook setup "$1"' \
    --customize-hook='exec sh "$HUTCH_BOOTSTRAP" --hook customize "$1"' \
    "$suite" - "$tmp/sources.list" 2>"$tmp/log" 9>&- &
pid=$!
status=0
wait "$pid" || status=$?
pid=''
wait "$filter" || :
filter=''
[ "$status" = 0 ] || exit 1
