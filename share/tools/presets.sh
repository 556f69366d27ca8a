#!/bin/sh
# presets.sh NAME [DEFAULTS]: where this host's own package tools go, for the
# network preset NAME (apt, pip, npm, git). What the operator configured decides:
# the tool is asked, or its files are read where it is not installed, so a mirror
# or a private index is followed. Where nothing is configured it is what the tool
# itself goes to; where pip or npm is not installed, what the one in the template
# base goes to (DEFAULTS, the text that bootstrap.sh noted); for git, which knows
# none, the two public forges that most code is on. No registry is named here.
#
#   stdout  lines: "source WHAT"         what decided
#                  "allow URL"           sandboxes may go to this host and port
#                  "html TEXT"           a piece of an index page; the daemon reads the links to files in it (core/preset.h)
#                  "page URL"            the end of the page, and where it was
#                  "env NAME VALUE"      what the tool inside needs to go there too
#                  "via ADDR:PORT AUTH"  the HTTP proxy this host's tool goes through; AUTH, if any, as Proxy-Authorization
#   stderr  one line that says why, if there is nothing to say (exit 1)
#
# Only configuration and an index's links to its files decide. What packages
# say about themselves (pages, homepages, remarks, "dist.tarball") never does:
# their owners write it, and sandboxes must not reach what they like.
# Credentials in an address are left out: they are the operator's, not the sandbox's.
set -euf
umask 077
export LC_ALL=C PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
unset IFS || :

die() { echo "$1" >&2; exit 1; }
have() { command -v "$1" >/dev/null 2>&1; }
plain() { sed -n -e 's|^\(https\{0,1\}://\)[^/?#]*@|\1|' -e '/^https\{0,1\}:\/\/[A-Za-z0-9._:[-][!-~]*$/p'; }
allow() { sort -u | sed 's/^/allow /'; }
# default_of TOOL: what the template's own goes to
default_of() { printf '%s\n' "$defaults" | sed -n "s/^$1 //p" | plain | head -n 1; }
one_line() { tr '\n' ' ' | sed 's/ *$//'; }

# page URL: a web page in lines of its own kind, without credentials of ours. Line ends are blanks; cut anywhere.
exec 4>&1
page() {
    pieces() { head -c 4194304 | tr '\n\r\t\f\000' '     ' | fold -b -w 4000 | awk '{ print "html " $0 }' >&4; }
    accept='Accept: application/vnd.pypi.simple.v1+html, text/html;q=0.5'
    if have curl; then
        at=$({ curl -fsL --proto =http,https --max-redirs 5 -m 10 -H "$accept" -w '%{stderr}%{url_effective}' -- "$1" 2>&3 | pieces; } 3>&1) || :
    elif have wget; then
        at=$1
        wget -q -T 10 -t 1 --max-redirect 0 --header "$accept" -O - -- "$1" 2>/dev/null | pieces || :
    else
        at=$1 # its end without a piece: the daemon knows that it was not read
    fi
    printf '%s\n' "$at" | plain | sed 's/^/page /'
}

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
    echo "source this host's apt sources"
    echo "$urls" | allow
    via "$(apt-config dump Acquire::http::Proxy 2>/dev/null | sed -n 's/^Acquire::http::Proxy "\(.*\)";$/\1/p')"
}

# Files of settings in the form of `pip config list`, later ones win.
ini() {
    for f; do if [ -r "$f" ]; then cat -- "$f"; echo; fi; done | awk -v q="'" '
        function put() { if (key != "") printf "%s.%s=%s%s%s\n", section, key, q, value, q; key = "" }
        /^[ \t]*([#;]|$)/ { next }
        /^\[/ { put(); section = $0; sub(/^\[ */, "", section); sub(/ *\].*/, "", section); next }
        /^[ \t]/ { sub(/^[ \t]+/, ""); value = value (value == "" ? "" : " ") $0; next }
        match($0, /[=:]/) { put(); key = substr($0, 1, RSTART - 1); value = substr($0, RSTART + 1); gsub(/[ \t]/, "", key); gsub(/_/, "-", key); key = tolower(key); sub(/^[ \t]+/, "", value); sub(/[ \t\r]+$/, "", value) }
        END { put() }'
}

pip_settings() {
    for pip in pip3 pip; do
        if have "$pip" && $pip config list 2>/dev/null; then return 0; fi
    done
    [ "${PIP_CONFIG_FILE:-}" != /dev/null ] || return 0
    ini /etc/xdg/pip/pip.conf /etc/pip.conf "$HOME/.pip/pip.conf" "$HOME/.config/pip/pip.conf" ${PIP_CONFIG_FILE:+"$PIP_CONFIG_FILE"}
}

pip_default() {
    for pip in pip3 pip; do
        if have "$pip"; then
            found=$($pip install --help 2>/dev/null | tr -s ' \n' '  ' | sed -n 's/.*Base URL of the Python Package Index (default \(https\{0,1\}:[^ )]*\)).*/\1/p')
            if [ -n "$found" ]; then echo "$found"; return 0; fi
        fi
    done
    default_of pip
}

preset_pip() {
    conf=$(pip_settings)
    value() {
        for section in :env: install global; do
            found=$(printf '%s\n' "$conf" | sed -n "s/^$section\.$1='\(.*\)'\$/\1/p" | sed 's/\\n/ /g' | tail -n 1)
            if [ -n "$found" ]; then echo "$found"; return 0; fi
        done
    }
    index=${PIP_INDEX_URL:-$(value index-url)}
    extra=$(for u in ${PIP_EXTRA_INDEX_URL:-$(value extra-index-url)}; do echo "$u"; done | plain)
    if [ -n "$index" ]; then
        index=$(echo "$index" | plain)
        [ -n "$index" ] || die "pip on this host uses an index that is not http or https"
        source="this host's pip configuration"
    else
        index=$(pip_default | plain)
        [ -n "$index" ] || die "pip is not installed on this host, no index is configured, and template base, which knows one, is not built yet (hutch template build base)"
        source="pip's own default: no index-url is set on this host"
    fi
    echo "source $source"
    for u in $index $extra; do
        echo "allow $u"
        page "${u%/}/pip/" # where the index keeps its files
    done
    echo "env PIP_INDEX_URL $index"
    [ -z "$extra" ] || echo "env PIP_EXTRA_INDEX_URL $(echo "$extra" | one_line)"
    via "${PIP_PROXY:-$(value proxy)}"
    trusted=$(value trusted-host)
    [ -z "$trusted" ] || echo "env PIP_TRUSTED_HOST $trusted"
}

# npm_value KEY: of npm, or of its files where it is not installed or does not say
npm_value() {
    found=
    if have npm; then found=$(npm config get "$1" 2>/dev/null || :); fi
    if [ -z "$found" ]; then # npm keeps addresses with credentials to itself
        upper=$(echo "$1" | tr a-z- A-Z_)
        found=$(eval "printf %s \"\${npm_config_$(echo "$1" | tr - _):-\${NPM_CONFIG_$upper:-}}\"")
        for f in "${NPM_CONFIG_USERCONFIG:-$HOME/.npmrc}" /usr/local/etc/npmrc /usr/etc/npmrc /etc/npmrc; do
            if [ -z "$found" ] && [ -r "$f" ]; then
                found=$(sed -n "s/^[ \t]*$1[ \t]*=[ \t]*\(.*[^ \t\r]\)[ \t\r]*\$/\1/p" "$f" | tail -n 1 | sed "s/^[\"']\(.*\)[\"']\$/\1/")
            fi
        done
    fi
    case $found in null | undefined) ;; *) printf '%s\n' "$found" ;; esac
}

# The registry alone: npm itself asks it for files that a package says are on the public one ("replace-registry-host").
preset_npm() {
    registry=$(npm_value registry) source="this host's npm configuration"
    if [ -z "$registry" ]; then
        registry=$(default_of npm) source="npm's own default: no registry is set on this host"
        [ -n "$registry" ] || die "npm is not installed on this host, no registry is configured, and template base, which knows one, is not built yet (hutch template build base)"
    fi
    registry=$(echo "$registry" | plain)
    [ -n "$registry" ] || die "npm on this host uses a registry that is not http or https"
    echo "source $source"
    echo "$registry" | allow
    case $registry in https:*) proxy=$(npm_value https-proxy) ;; *) proxy= ;; esac
    via "${proxy:-$(npm_value proxy)}"
    echo "env npm_config_registry $registry"
    echo "env npm_config_update_notifier false"
    echo "env npm_config_audit false"
}

# As `git config --list`: of git, or of its files where it is not installed.
git_settings() {
    if have git; then
        git config --list 2>/dev/null || :
        return 0
    fi
    for f in "${GIT_CONFIG_SYSTEM:-/etc/gitconfig}" ${GIT_CONFIG_GLOBAL:-"$HOME/.config/git/config" "$HOME/.gitconfig"}; do if [ -r "$f" ]; then cat -- "$f"; echo; fi; done | awk '
        /^[ \t]*\[/ { part = $0; sub(/^[ \t]*\[ */, "", part); sub(/ *\].*/, "", part); name = part; sub(/[ \t".].*/, "", name)
                      sub(/^[^"]*"?/, "", part); sub(/"$/, "", part); prefix = tolower(name) "." (part == "" ? "" : part "."); next }
        match($0, /=/) { key = substr($0, 1, RSTART - 1); value = substr($0, RSTART + 1); gsub(/[ \t]/, "", key)
                         sub(/^[ \t]+/, "", value); sub(/[ \t\r]+$/, "", value); if (value ~ /^".*"$/) value = substr(value, 2, length(value) - 2)
                         if (key ~ /^[A-Za-z][A-Za-z0-9-]*$/) print prefix tolower(key) "=" value }'
}

preset_git() {
    conf=$(git_settings)
    # what the operator's git is sent to, or keeps credentials for
    urls=$(printf '%s\n' "$conf" | sed -n -e 's#^url\.\(https\{0,1\}://[^ =]*\)\.\(push\)\{0,1\}insteadof=.*#\1#p' -e 's#^credential\.\(https\{0,1\}://[^ =]*\)\.[a-z]*=.*#\1#p' | plain | sort -u)
    if [ -n "$urls" ]; then
        echo "source this host's git configuration"
        echo "$urls" | allow
    else
        echo "source built in: git on this host is not configured with a server"
        echo "allow https://github.com/"
        echo "allow https://gitlab.com/"
    fi
    via "$(printf '%s\n' "$conf" | sed -n 's/^http\.proxy=//p' | tail -n 1)"
    i=0
    printf '%s\n' "$conf" | sed -n 's#^url\.\(https\{0,1\}://[^ =]*\)\.insteadof=\(.*\)#\1 \2#p' | while read -r to from; do
        base=$(echo "$to" | plain)
        [ -n "$base" ] || continue
        echo "env GIT_CONFIG_KEY_$i url.$base.insteadOf"
        echo "env GIT_CONFIG_VALUE_$i $from"
        i=$((i + 1))
        echo "env GIT_CONFIG_COUNT $i"
    done
}

[ $# -ge 1 ] || die "usage: presets.sh NAME [DEFAULTS]"
defaults=${2:-}
HOME=${HOME:-/root}
cd /
case $1 in
apt | pip | npm | git) "preset_$1" ;;
*) die "unknown preset '$1'" ;;
esac
