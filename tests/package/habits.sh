# shellcheck shell=bash disable=SC2154,SC2164 # tools/run-package has the variables and stops at what fails
# make's targets, the filters of tests, versions.

test_help_names_targets() {
    local out
    out=$(make help)
    for t in deps demo unit e2e lint test install uninstall deb dist; do has "$out" "make $t"; done
}

# A program of unit tests: $1 the body of its one test.
unit_program() {
    mkdir -p "$tmp/unit"
    printf '#include "test.h"\nTEST(a, b) { %s }\nTEST_MAIN\n' "$1" >"$tmp/unit/t.c"
    gcc -std=gnu17 -D_GNU_SOURCE -Itests -o "$tmp/unit/t" "$tmp/unit/t.c"
}
test_unit_filter_that_matches_nothing_fails() {
    unit_program ''
    "$tmp/unit/t" a.b
    ! "$tmp/unit/t" nosuchword || fail "exit 0"
    has "$("$tmp/unit/t" nosuchword || :)" 'not ok - no test matches nosuchword'
}
test_unit_flake_is_a_failure() {
    local out
    rm -f "$tmp/ran"
    unit_program "CHECK(!access(\"$tmp/ran\", F_OK) || (fclose(fopen(\"$tmp/ran\", \"w\")), 0));"
    out=$(tools/run-unit "$tmp/unit/t") && fail "a flake passed: $out"
    has "$out" 'flaky, it passed the second time'
    has "$out" 'unit: 0 passed, 1 failed'
    out=$(tools/run-unit "$tmp/unit/t")
    has "$out" 'unit: 1 passed, 0 failed'
}
test_e2e_filter_that_matches_nothing_fails() {
    local out py=/usr/bin/python3
    for more in "" "--list" "-j 2"; do
        # shellcheck disable=SC2086 # words
        out=$("$py" tests/lib/runner.py $more -k nosuchword tests/e2e/test_cli.py) && fail "exit 0 with '$more': $out"
        has "$out" 'no test matches'
    done
    "$py" tests/lib/runner.py --list -k version tests/e2e/test_cli.py >/dev/null || "$py" tests/lib/runner.py --list tests/e2e/test_cli.py >/dev/null
}
test_make_e2e_runs_something() {
    has "$(make -n e2e K=one TIER=container)" 'tools/run-e2e -k "one" --tier container'
}
test_another_machine_has_other_flags() {
    local arm x86
    arm=$(make -n MULTIARCH=aarch64-linux-gnu B="$tmp/arm" all)
    x86=$(make -n MULTIARCH=x86_64-linux-gnu B="$tmp/x86" all)
    has "$arm" '-idirafter /usr/include/aarch64-linux-gnu'
    hasnt "$arm" 'x86_64'
    hasnt "$arm" '-fcf-protection'
    has "$x86" '-idirafter /usr/include/x86_64-linux-gnu'
    has "$x86" '-fcf-protection'
}
test_version_has_the_commit() {
    local commit
    commit=$(git rev-parse --short=10 HEAD)
    has "$(tools/version)" "$commit"
    for p in hutchd hutch-spawn hutch-egress; do has "$("$B/$p" --version)" '0.1.0 ('; done
    has "$(HUTCH_RUN=$tmp "$B/hutch" version)" 'hutch 0.1.0 ('
}
test_dist_knows_its_commit() {
    make --no-print-directory dist B="$tmp/dist"
    mkdir "$tmp/dist/x"
    tar -C "$tmp/dist/x" -xzf "$tmp"/dist/hutch-*.tar.gz --strip-components=1
    [ ! -e "$tmp/dist/x/.git" ]
    has "$("$tmp/dist/x/tools/version")" "$(git rev-parse --short=7 HEAD)"
}

test_format_of_changed_lines() {
    local out
    mkdir -p "$tmp/clone/tools"
    cp .clang-format "$tmp/clone/"
    cp tools/lint-format "$tmp/clone/tools/"
    cd "$tmp/clone"
    git init -q .
    git config user.email t@example.org
    git config user.name t
    printf 'int   old_and_odd;\n\nint f(int a)\n{\n    a++;\n    return a;\n}\nint w%0110d;\n' 1 >a.c
    git add -A
    git commit -qm one
    printf 'int   old_and_odd;\n\nint f(int a)\n{\n    a++;\n    return a + 1;\n}\nint v%0110d;\n' 1 >a.c
    tools/lint-format || fail "a tidy change, and a word in a long line, are refused"
    printf 'int   old_and_odd;\n\nint f(int a)\n{\n    a++;\n    return a+1;\n}\nint v%0110d;\n' 1 >a.c
    out=$(tools/lint-format 2>&1) && fail "an untidy line is taken"
    has "$out" '+    return a + 1;'
    hasnt "$out" '-int   old_and_odd;'
    echo 'int   new ;' >b.c
    out=$(tools/lint-format 2>&1) && fail "an untidy new file is taken"
    has "$out" 'b.c'
    tools/lint-format --fix
    tools/lint-format
    has "$(head -n 1 a.c)" 'int   old_and_odd;'
}

# Otherwise every clone has an agent of its own, and the test homes and VM snapshots made with it.
test_programs_do_not_name_the_clone() {
    local p
    for p in hutchd hutch hutch-spawn hutch-egress hutch-agent hutch-untar hutch-zygote.so; do
        ! grep -qaF "$repo" "$B/$p" || fail "$p contains $repo"
    done
}
