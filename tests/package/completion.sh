# shellcheck shell=bash disable=SC2154,SC2164 # tools/run-package has the variables and stops at what fails
# Completion in the three shells, and the man pages. The names come from a stand-in for the daemon.

# With $tmp/run as HUTCH_RUN and hutch in the PATH; stopped with the subshell of the test.
stand_in() {
    mkdir -p "$tmp/run" "$tmp/bin"
    ln -sf "$repo/$B/hutch" "$tmp/bin/hutch"
    rm -f "$tmp/run/hutch.sock"
    timeout 60 python3 tests/package/daemon.py "$tmp/run/hutch.sock" >"$tmp/up" &
    trap 'kill %1' EXIT
    timeout 10 sh -c "until grep -q up '$tmp/up'; do sleep 0.02; done"
    export HUTCH_RUN=$tmp/run PATH=$tmp/bin:$PATH
}

# Every kind of name, in each shell: "line typed so far|what must be offered, in order".
offers() {
    cat <<'X'
hutch vol|volume
hutch volume |create ls rm
hutch run --isol|--isolation
hutch run --isolation |vm gvisor container auto
hutch run --template not|notebook
hutch exec we|web
hutch kill web i|iaaaaaaaaaaaaaaaaaaaa ibbbbbbbbbbbbbbbbbbbb
hutch volume rm d|data
hutch secret rm |token
hutch rollback web b|before
hutch create --snapshot be|before
hutch key revoke k|kaaaaaaaaaaaaaaaaaaaa
hutch template show n|notebook
hutch completion z|zsh
hutch timeout web |
X
}
sorted() { tr ' ' '\n' <<<"$1" | grep . | sort | tr '\n' ' '; }
same() { [ "$(sorted "$2")" = "$(sorted "$3")" ] || fail "'$1' offers '$2', want '$3'"; }

test_completion_bash() {
    stand_in
    hutch completion bash >"$tmp/hutch.bash"
    offers >"$tmp/offers"
    cat >"$tmp/ask.bash" <<'X'
. "$1"
# As readline does it: words cut at blanks, and at each ":" and "=".
ask() {
    COMP_LINE=$1 COMP_POINT=${#1} COMP_WORDS=()
    local w rest
    for w in $1; do
        while [[ $w == *[:=]* && $w != -- ]]; do
            rest=${w#*[:=]}
            [[ ${w%"${w#*[:=]}"} == ? ]] || COMP_WORDS+=("${w%%[:=]*}")
            COMP_WORDS+=("${w:${#w}-${#rest}-1:1}")
            w=$rest
        done
        [[ -z $w ]] || COMP_WORDS+=("$w")
    done
    [[ $1 != *' ' ]] || COMP_WORDS+=('')
    COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
    _hutch hutch
    echo "${COMPREPLY[*]}"
}
ask "$2"
X
    while IFS='|' read -r line want; do same "$line" "$(bash "$tmp/ask.bash" "$tmp/hutch.bash" "$line")" "$want"; done <"$tmp/offers"
    same '--isolation=' "$(bash "$tmp/ask.bash" "$tmp/hutch.bash" 'hutch run --isolation=c')" container
    cd "$tmp" && mkdir files && cd files && touch 'a b' web.txt
    has "$(bash "$tmp/ask.bash" "$tmp/hutch.bash" 'hutch cp w')" 'web:'
    has "$(bash "$tmp/ask.bash" "$tmp/hutch.bash" 'hutch cp w')" 'web.txt'
}

test_completion_zsh() {
    command -v zsh >/dev/null || fail "zsh is not installed (tools/deps test)"
    stand_in
    hutch completion zsh >"$tmp/_hutch"
    zsh -n "$tmp/_hutch"
    offers >"$tmp/offers"
    # The function with stand-ins for what draws the menu.
    cat >"$tmp/ask.zsh" <<'X'
source <(sed 's/^if \[\[ .*compdef.*$//' $1)
_describe() { local list=$4 e; for e in ${(P)list}; do e=${e//\\:/$'\1'}; print -r -- ${${e%%:*}//$'\1'/:}; done }
_files() { print -r -- FILES }
words=(${(z)2}) CURRENT=$#words
[[ $2 == *' ' ]] && words+=('') && CURRENT=$#words
_hutch
X
    while IFS='|' read -r line want; do same "$line" "$(zsh -f "$tmp/ask.zsh" "$tmp/_hutch" "$line" | tr '\n' ' ')" "$want"; done <"$tmp/offers"
    has "$(zsh -f "$tmp/ask.zsh" "$tmp/_hutch" 'hutch cp w')" 'web:'
    has "$(zsh -f "$tmp/ask.zsh" "$tmp/_hutch" 'hutch cp w')" FILES
    # And once with its own widgets: a line is typed at a terminal, and Tab.
    cat >"$tmp/type.zsh" <<'X'
zmodload zsh/zpty
zpty z "ZDOTDIR=$1 HUTCH_RUN=$HUTCH_RUN PATH=$PATH zsh -f -i"
zpty -w z "PS1=; autoload -Uz compinit && compinit -u -D; fpath+=($1); source $1/_hutch; echo rea''dy"
zpty -m z r '*ready*' >/dev/null
zpty -w -n z $'echo hutch version; hutch vol\t\n'
zpty -w z "exit"
while zpty -r z line; do print -r -- $line; done
X
    has "$(timeout 20 zsh -f "$tmp/type.zsh" "$tmp" 2>&1 || :)" 'usage: hutch volume'
}

test_completion_fish() {
    command -v fish >/dev/null || fail "fish is not installed (tools/deps test)"
    stand_in
    hutch completion fish >"$tmp/hutch.fish"
    fish --no-execute "$tmp/hutch.fish"
    offers >"$tmp/offers"
    export HOME=$tmp/home XDG_CONFIG_HOME=$tmp/home
    while IFS='|' read -r line want; do
        same "$line" "$(fish --no-config -c 'source $argv[1]; complete -C $argv[2]' "$tmp/hutch.fish" "$line" | cut -f1 | tr '\n' ' ')" "$want"
    done <"$tmp/offers"
    has "$(fish --no-config -c 'source $argv[1]; complete -C $argv[2]' "$tmp/hutch.fish" 'hutch cp w')" 'web:'
}

test_completion_starts_no_daemon() {
    mkdir -p "$tmp/none"
    same kill "$(HUTCH_HOME=$tmp/none/home HUTCH_RUN=$tmp/none "$B/hutch" __complete -- kill '')" ''
    [ ! -e "$tmp/none/home" ]
}

test_man_pages() {
    local out
    make --no-print-directory B="$B" "$B/man/hutch.1" "$B/man/hutchd.8" "$B/man/hutch-spawn.8"
    for p in hutch.1 hutchd.8 hutch-spawn.8; do
        out=$(MANWIDTH=100 man --warnings -l "$B/man/$p" 2>&1 >/dev/null)
        [ -z "$out" ] || fail "$p: $out"
    done
    out=$(MANWIDTH=200 man -l "$B/man/hutch.1")
    for v in $("$B/hutch" __complete -- '' | cut -f1); do has "$out" "hutch $v"; done
    has "$out" 'hutch template build'
    out=$(MANWIDTH=200 man -l "$B/man/hutchd.8")
    for s in $("$B/hutchd" --settings | sed -n 's/^| `\(HUTCH_[A-Z_*]*\)`.*/\1/p'); do has "$out" "$s"; done
}
