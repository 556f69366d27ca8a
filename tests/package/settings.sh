# shellcheck shell=bash disable=SC2154,SC2164 # tools/run-package has the variables and stops at what fails
# hutchd's options and its file of settings.

test_hutchd_answers_without_settings() {
    local out
    for o in --help --version --settings --settings=conf --man --doors; do
        out=$(env -i HUTCH_POOL_VM=nonsense "$B/hutchd" $o 2>&1)
        hasnt "$out" ERROR
    done
    has "$("$B/hutchd" --help)" 'usage: hutchd'
    ! "$B/hutchd" --nonsense 2>"$tmp/err" || fail "an unknown option is taken"
    has "$(cat "$tmp/err")" "unknown option '--nonsense'"
}
test_hutchd_reads_the_file_it_is_given() {
    local out
    printf 'HUTCH_POOL_VM=nonsense\nHUTCH_LISTEM=x\n' >"$tmp/conf"
    out=$(env -i HUTCH_CONFIG="$tmp/conf" "$B/hutchd" --doctor 2>&1) && fail "started with a wrong value"
    has "$out" 'HUTCH_POOL_VM must be a number from 0 to 1000'
    has "$out" "HUTCH_LISTEM in $tmp/conf:2: did you mean HUTCH_LISTEN?"
    env -i PATH="$PATH" HUTCH_CONFIG="$tmp/conf" HUTCH_POOL_VM=1 "$B/hutchd" --doctor >/dev/null 2>&1 || fail "the environment does not win"
}
test_hutch_looks_where_the_file_says() {
    mkdir "$tmp/elsewhere"
    timeout 20 python3 tests/package/daemon.py "$tmp/elsewhere/hutch.sock" >"$tmp/up" &
    trap 'kill %1' EXIT
    timeout 10 sh -c "until grep -q up '$tmp/up'; do sleep 0.02; done"
    echo "HUTCH_RUN=$tmp/elsewhere" >"$tmp/conf"
    has "$(env -i HUTCH_CONFIG="$tmp/conf" "$B/hutch" version)" 'hutchd 7.7.7'
}
test_documentation_has_the_table() {
    tools/settings-table "$B/hutchd"
}
