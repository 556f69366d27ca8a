#!/bin/sh
# presets.sh NAME: where this host's own package tools go, for the network
# preset NAME (apt, pip, npm, git). No address is known here: each is asked of
# the tool as the operator configured it, so a mirror or a private index is
# followed.
#
#   stdout  lines: "allow URL"          sandboxes may go to this host and port
#                  "env NAME VALUE"     what the tool inside needs to go there too
#                  "via ADDR:PORT AUTH" the HTTP proxy this host's tool goes through; AUTH, if any, as Proxy-Authorization
#   stderr  one line that says why, if there is nothing to say (exit 1)
#
# Credentials in an address are left out: they are the operator's, not the sandbox's.
set -eu
umask 077
export LC_ALL=C PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
unset IFS || :

die() { echo "$1" >&2; exit 1; }
have() { command -v "$1" >/dev/null 2>&1; }
plain() { sed -n -e 's#^\(https\{0,1\}://\)[^/@]*@#\1#' -e '/^https\{0,1\}:\/\/[A-Za-z0-9._:[-]/p'; }
allow() { sort -u | sed 's/^/allow /'; }
# the start of a document, without credentials of our own
fetch() { if have curl; then curl -fsSL -m 20 --max-filesize 33554432 -- "$1"; elif have wget; then wget -q -T 20 -O - -- "$1"; fi 2>/dev/null || :; }
hosts_in() { grep -o 'https\{0,1\}://[A-Za-z0-9._:-]*' | sort -u; }

# via URL: the proxy of a tool, its name looked up as this host does
via() {
    case $1 in http://?*) ;; *) return 0 ;; esac
    rest=${1#http://} rest=${rest%%/*} user=
    case $rest in *@*) user=${rest%@*} rest=${rest##*@} ;; esac
    case $rest in *:*) port=${rest##*:} name=${rest%:*} ;; *) port=80 name=$rest ;; esac
    addr=$(getent ahosts "$name" 2>/dev/null | awk '{ print $1; exit }')
    [ -n "$addr" ] || { echo "the proxy $name of this host's tool has no address" >&2; return 0; }
    case $addr in *:*) addr="[$addr]" ;; esac
    if [ -n "$user" ]; then echo "via $addr:$port Basic $(printf %s "$user" | base64 -w 0)"; else echo "via $addr:$port"; fi
}

preset_apt() {
    have apt-get || die "apt is not installed on this host"
    # shellcheck disable=SC2016  # apt's own syntax
    urls=$(apt-get indextargets --format '$(REPO_URI)' 2>/dev/null | plain | sort -u)
    [ -n "$urls" ] || die "apt on this host has no http or https source"
    echo "$urls" | allow
    via "$(apt-config dump Acquire::http::Proxy 2>/dev/null | sed -n 's/^Acquire::http::Proxy "\(.*\)";$/\1/p')"
}

preset_pip() {
    for pip in pip3 pip; do if have "$pip"; then break; fi; done
    have "$pip" || die "pip is not installed on this host"
    conf=$($pip config list 2>/dev/null || :)
    value() { printf '%s\n' "$conf" | sed -n "s/^[a-z:]*\.$1='\(.*\)'\$/\1/p" | sed 's/\\n/ /g' | head -n 1; }
    index=${PIP_INDEX_URL:-$(value index-url)}
    [ -n "$index" ] || index=$($pip install --help | tr -s ' \n' '  ' | sed -n 's/.*Base URL of the Python Package Index (default \(https\{0,1\}:[^ )]*\)).*/\1/p')
    index=$(echo "$index" | plain)
    [ -n "$index" ] || die "pip on this host names no package index"
    extra=$(for u in ${PIP_EXTRA_INDEX_URL:-$(value extra-index-url)}; do echo "$u"; done | plain)
    for u in $index $extra; do
        echo "$u"
        fetch "${u%/}/pip/" | hosts_in # where the index keeps its files
    done | allow
    echo "env PIP_INDEX_URL $index"
    [ -z "$extra" ] || echo "env PIP_EXTRA_INDEX_URL $(echo "$extra" | tr '\n' ' ' | sed 's/ $//')"
    via "${PIP_PROXY:-$(value proxy)}"
    trusted=$(value trusted-host)
    [ -z "$trusted" ] || echo "env PIP_TRUSTED_HOST $trusted"
}

preset_npm() {
    have npm || die "npm is not installed on this host"
    registry=$(npm config get registry 2>/dev/null | plain | head -n 1)
    [ -n "$registry" ] || die "npm on this host names no registry"
    { echo "$registry"; fetch "${registry%/}/npm/latest" | grep -o '"tarball":"[^"]*"' | hosts_in; } | allow
    case $registry in https:*) proxy=$(npm config get https-proxy 2>/dev/null) ;; *) proxy= ;; esac
    case $proxy in '' | null | undefined) proxy=$(npm config get proxy 2>/dev/null) ;; esac
    via "$proxy"
    echo "env npm_config_registry $registry"
    echo "env npm_config_update_notifier false"
    echo "env npm_config_audit false"
}

preset_git() {
    have git || die "git is not installed on this host"
    # what the operator's git is sent to, or keeps credentials for
    urls=$(git config --get-regexp '^url\..*\.(push)?insteadof$|^credential\..*\.' 2>/dev/null |
        sed -n 's#^[a-z]*\.\(https\{0,1\}://[^ ]*\)\.[a-zA-Z]* .*#\1#p' | plain | sort -u)
    [ -n "$urls" ] || die "git on this host is set to no server; name some in HUTCH_PRESET_GIT"
    echo "$urls" | allow
    via "$(git config --get http.proxy 2>/dev/null || :)"
    i=0
    git config --get-regexp '^url\..*\.insteadof$' 2>/dev/null | while read -r key from; do
        base=$(echo "${key#url.}" | sed 's/\.insteadof$//' | plain)
        [ -n "$base" ] || continue
        echo "env GIT_CONFIG_KEY_$i url.$base.insteadOf"
        echo "env GIT_CONFIG_VALUE_$i $from"
        i=$((i + 1))
        echo "env GIT_CONFIG_COUNT $i"
    done
}

[ $# -ge 1 ] || die "usage: presets.sh NAME"
HOME=${HOME:-/root}
cd /
case $1 in
apt | pip | npm | git) "preset_$1" ;;
*) die "there is no preset '$1'" ;;
esac
