# shellcheck shell=bash disable=SC2154,SC2164 # tools/run-package has the variables and stops at what fails
# The Debian package: what is in it, that it installs, upgrades over itself, goes. tests/package/in-bare-root is the long form in a real Debian.

the_deb() { # builds it once; prints its path
    [ -e "$tmp"/deb.path ] || make --no-print-directory B="$B" deb >"$tmp/deb.log" 2>&1 || { cat "$tmp/deb.log"; return 1; }
    [ -e "$tmp"/deb.path ] || tail -n 1 "$tmp/deb.log" >"$tmp/deb.path"
    cat "$tmp/deb.path"
}

test_deb_contents() {
    local deb list control
    deb=$(the_deb)
    list=$(dpkg-deb -c "$deb" | awk '{ print $1, $2, $6 }')
    for f in usr/bin/hutch usr/sbin/hutchd usr/libexec/hutch/hutch-{spawn,agent,egress,untar}; do has "$list" "-rwxr-xr-x root/root ./$f"; done
    for f in usr/share/hutch/seccomp/egress.profile usr/lib/systemd/system/hutchd.service etc/hutch/hutchd.conf usr/share/man/man1/hutch.1.gz \
        usr/share/man/man8/hutchd.8.gz usr/share/man/man8/hutch-spawn.8.gz usr/share/bash-completion/completions/hutch \
        usr/share/zsh/vendor-completions/_hutch usr/share/fish/vendor_completions.d/hutch.fish usr/share/doc/hutch/copyright \
        usr/share/doc/hutch/changelog.Debian.gz; do
        has "$list" "-rw-r--r-- root/root ./$f"
    done
    hasnt "$list" usr/local
    hasnt "$list" __pycache__
    control=$(dpkg-deb -f "$deb")
    has "$control" "Version: $(sed -n 's/^VERSION := //p' Makefile)-"
    for d in libc6 libevent libjansson libsqlite3 libssl libarchive qemu-system mmdebstrap nftables; do has "$control" $d; done
    [ "$(dpkg-deb -I "$deb" conffiles)" = /etc/hutch/hutchd.conf ]
    if command -v lintian >/dev/null; then lintian --fail-on error "$deb"; fi
}

test_deb_is_reproducible() {
    local deb sum
    deb=$(the_deb)
    sum=$(sha256sum <"$deb")
    make --no-print-directory B="$B" deb >/dev/null 2>&1
    [ "$sum" = "$(sha256sum <"$deb")" ] || fail "the same source gave other bytes"
}

# A root with a shell, and stand-ins that write down what they were asked.
small_root() {
    local r=$1 b=busybox
    mkdir -p "$r"/{bin,sbin,dev,etc,run,var/lib/dpkg/{info,updates}} "$r/usr/"{bin,sbin}
    : >"$r/var/lib/dpkg/status"
    mknod -m 666 "$r/dev/null" c 1 3
    cp "$(command -v $b)" "$r/bin/busybox"
    for c in sh rm echo cat; do ln -s busybox "$r/bin/$c"; done
    for c in adduser getent deb-systemd-helper deb-systemd-invoke systemctl; do
        printf '#!/bin/sh\necho "%s $*" >>/asked\n' $c >"$r/usr/bin/$c"
        chmod 755 "$r/usr/bin/$c"
    done
    printf 'exit 2\n' >>"$r/usr/bin/getent" # nobody is there
}
in_root() { dpkg --root="$tmp/root" --force-not-root --force-depends --log=/dev/null "$@" >"$tmp/dpkg.log" 2>&1 || { cat "$tmp/dpkg.log"; return 1; }; }

test_deb_installs_upgrades_and_goes() {
    local deb asked r=$tmp/root left
    deb=$(the_deb)
    small_root "$r"
    (cd "$r" && find . ! -path './var/lib/dpkg*' | sort) >"$tmp/before"
    in_root -i "$deb"
    asked=$(cat "$r/asked")
    has "$asked" 'adduser --system --quiet --group --uid 64882'
    has "$asked" 'adduser --system --quiet --group --uid 64883'
    has "$asked" 'deb-systemd-helper unmask hutchd.service'
    hasnt "$asked" 'systemctl' # no systemd runs in there
    has "$("$r/usr/sbin/hutchd" --version)" 'hutchd 0.1.0'
    cmp "$r/etc/hutch/hutchd.conf" <("$B/hutchd" --settings=conf)
    # The installed programs find one another.
    has "$(env -i PATH="$PATH" HUTCH_CONFIG=none "$r/usr/sbin/hutchd" --doctor)" '"checks"'
    has "$(env -i HUTCH_HOME="$tmp/h" HUTCH_RUN="$tmp/r" PATH=/nowhere "$r/usr/bin/hutch" __complete -- vers)" version

    echo HUTCH_LOG=debug >>"$r/etc/hutch/hutchd.conf"
    in_root --force-confold -i "$deb" # over itself
    has "$(cat "$r/etc/hutch/hutchd.conf")" HUTCH_LOG=debug
    mkdir -p "$r/var/lib/hutch/volumes" "$r/run/hutch"

    in_root -r hutch
    [ ! -e "$r/usr/sbin/hutchd" ]
    [ -e "$r/etc/hutch/hutchd.conf" ]
    in_root -P hutch
    [ ! -e "$r/etc/hutch" ]
    [ ! -e "$r/run/hutch" ]
    [ -d "$r/var/lib/hutch/volumes" ]
    left=$(cd "$r" && find . ! -path './var/lib/dpkg*' ! -path './var/lib/hutch*' ! -path ./asked | sort | comm -13 "$tmp/before" -)
    [ -z "$left" ] || fail "left behind: $left"
}

test_unit_is_valid() {
    local deb out
    deb=$(the_deb)
    dpkg-deb -x "$deb" "$tmp/x"
    has "$(cat "$tmp/x/usr/lib/systemd/system/hutchd.service")" 'ExecStart=/usr/sbin/hutchd'
    mkdir "$tmp/unit.d"
    sed "s,/usr/sbin/hutchd,$tmp/x/usr/sbin/hutchd," "$tmp/x/usr/lib/systemd/system/hutchd.service" >"$tmp/unit.d/hutchd.service"
    out=$(systemd-analyze --man=no verify "$tmp/unit.d/hutchd.service" 2>&1 | grep -F hutchd || :)
    [ -z "$out" ] || fail "$out"
    # The verifier must be able to complain, or its silence means nothing.
    echo 'Nonsense=yes' >>"$tmp/unit.d/hutchd.service"
    has "$(systemd-analyze --man=no verify "$tmp/unit.d/hutchd.service" 2>&1 || :)" Nonsense
}

test_install_and_uninstall() {
    make --no-print-directory -s B="$B" install DESTDIR="$tmp/dest" >/dev/null
    [ -x "$tmp/dest/usr/local/bin/hutch" ]
    [ -x "$tmp/dest/usr/local/sbin/hutchd" ]
    [ -x "$tmp/dest/usr/local/libexec/hutch/hutch-spawn" ]
    [ -s "$tmp/dest/usr/local/share/man/man1/hutch.1" ]
    has "$(cat "$tmp/dest/usr/local/lib/systemd/system/hutchd.service")" 'ExecStart=/usr/local/sbin/hutchd'
    echo HUTCH_LOG=debug >>"$tmp/dest/etc/hutch/hutchd.conf"
    make --no-print-directory -s B="$B" install DESTDIR="$tmp/dest" >/dev/null
    has "$(cat "$tmp/dest/etc/hutch/hutchd.conf")" HUTCH_LOG=debug
    make --no-print-directory -s B="$B" uninstall DESTDIR="$tmp/dest" >/dev/null
    [ "$(cd "$tmp/dest" && find . -type f)" = ./etc/hutch/hutchd.conf ] # it was changed
    rm "$tmp/dest/etc/hutch/hutchd.conf"
    make --no-print-directory -s B="$B" install DESTDIR="$tmp/dest" >/dev/null
    make --no-print-directory -s B="$B" uninstall DESTDIR="$tmp/dest" >/dev/null
    [ -z "$(find "$tmp/dest" -type f)" ]
}
