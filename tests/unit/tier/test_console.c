/* A guest's console as text: nothing a terminal would act on, and never more than so much of it on the disk. */
#include "tier/vm/console.h"
#include "tier/vm/vm_int.h"
#include "base/cleanup.h"
#include "loop/job.h"
#include "test.h"
#include <fcntl.h>
#include <sys/stat.h>

#define TEXT(s) ((struct str){s, sizeof s - 1})

static const char *text(struct str raw)
{
    static struct buf b;
    buf_free(&b);
    b = (struct buf){0};
    console_text(raw, &b);
    buf_putc(&b, '\0');
    return b.p;
}

TEST(console, lets_nothing_through_but_printable_ascii)
{
    CHECK_STR(text(TEXT("[    0.0] one\r\n\r\n[    0.1]\ttwo\r\n")),
              "[    0.0] one\n[    0.1] two\n");
    CHECK_STR(text(TEXT("\033]0;title\007\033[2J")), "\\x1b]0;title\\x07\\x1b[2J\n");
    CHECK_STR(text(TEXT("a\0b\x7f\x9b"
                        "31m\xc3\xa9")),
              "a\\x00b\\x7f\\x9b31m\\xc3\\xa9\n");
    CHECK_STR(text(TEXT("over\rwritten")), "over\nwritten\n");
    CHECK_STR(text(TEXT("")), "");
    CHECK_STR(text(TEXT("\n\r\n")), "");
    for (int c = 0; c < 256; c++) {
        char raw[1] = {(char)c};
        for (const char *p = text((struct str){raw, 1}); *p; p++)
            CHECK(*p == '\n' || (*p >= 0x20 && *p <= 0x7e));
    }
}

TEST(console, shows_the_last_lines)
{
    struct str t = TEXT("one\ntwo\nthree\n"), s = console_last(t, 2);
    CHECK(str_eqz(s, "two\nthree\n"));
    CHECK(str_eqz(console_last(t, 9), "one\ntwo\nthree\n"));
    CHECK(str_eqz(console_last(TEXT(""), 2), ""));
}

TEST(console, finds_the_line_that_names_the_cause)
{
    CHECK(str_eqz(
        console_cause(TEXT(
            "[ 1.9] EXT4-fs: x\nhutch-agent: mount /dev/vda: Invalid argument\n[ 2.0] reboot: Power down\n")),
        "hutch-agent: mount /dev/vda: Invalid argument"));
    CHECK(str_eqz(
        console_cause(TEXT("a\n[ 1.0] Kernel panic - not syncing: x\n[ 1.1] Call Trace:\n")),
        "[ 1.0] Kernel panic - not syncing: x"));
    CHECK(str_eqz(console_cause(TEXT("qemu-system-x86_64: could not load PC BIOS 'qboot.rom'\n")),
                  "qemu-system-x86_64: could not load PC BIOS 'qboot.rom'"));
    CHECK(str_eqz(console_cause(TEXT("a\nlast\n")), "last"));
    CHECK(str_eqz(console_cause(TEXT("")), ""));
    char line[400];
    memset(line, 'x', sizeof line);
    CHECK_INT(console_cause((struct str){line, sizeof line}).n, 120);
}

TEST(console, explains_a_failure)
{
    struct err e;
    err_set(&e, E_GUEST, "no answer for 40 s");
    console_explain(&e, TEXT("x\nhutch-agent: no disk\n"));
    CHECK_STR(
        e.msg,
        "no answer for 40 s; its console (log/console.log in HUTCH_HOME) says: hutch-agent: no disk");
    err_set(&e, E_GUEST, "no answer for 40 s");
    console_explain(&e, TEXT(""));
    CHECK_STR(e.msg,
              "no answer for 40 s; its console stayed empty: the guest's kernel did not start");
}

/* A guest that fails again and again, with as much on its console as there can be. */
TEST(console, log_has_a_bound)
{
    char home[] = "/tmp/hutch-console-XXXXXX", path[64], cmd[64];
    static char much[4 * SP_CONSOLE_MAX];
    struct stat st;
    CHECK(mkdtemp(home));
    (void)snprintf(path, sizeof path, "%s/log", home);
    CHECK_INT(mkdir(path, 0700), 0);
    struct loop *l = loop_new();
    struct jobs *j = jobs_new(l, 1);
    struct vm_host h = {
        .conf = {.loop = l, .jobs = j, .home_fd = open(home, O_RDONLY | O_DIRECTORY | O_CLOEXEC)}};
    memset(much, 'x', sizeof much);
    for (int i = 0; i < 40; i++)
        console_log(&h, "template t, boot 1 of 2: silent", (struct str){much, sizeof much});
    jobs_free(j);
    loop_turn(l, false); /* its burial */
    off_t sum = 0;
    for (int i = 0; i < 2; i++) {
        (void)snprintf(path, sizeof path, "%s/log/console.log%s", home, i ? ".1" : "");
        CHECK_INT(stat(path, &st), 0);
        CHECK_INT(st.st_mode & 0777, 0600);
        sum += st.st_size;
    }
    CHECK(sum > 256 << 10 && sum < 700 << 10);
    loop_free(l);
    close(h.conf.home_fd);
    (void)snprintf(cmd, sizeof cmd, "rm -r %s", home);
    CHECK_INT(system(cmd), 0);
}

TEST_MAIN
