/* SP_ISOLATE_START: the jail of an interpreter, seen from inside by a stand-in for the warden. */
#include "fixture.h"

static struct sp_req isolate_req(const char *id)
{
    struct sp_req q = {.op = SP_ISOLATE_START, .u.isolate = {.limit = {.memory_mib = 128, .cpu_millis = 1000, .pids_max = 64}, .language = SP_LANG_PYTHON}};
    strcpy(q.u.isolate.id, id);
    strcpy(q.u.isolate.template_id, TID);
    return q;
}
static struct tbox isolate_start(void)
{
    char id[SP_ID] = {0};
    id_make('b', id);
    return box_start_req(isolate_req(id));
}

TEST(isolate, sees_a_read_only_template_and_three_files)
{
    fx_start();
    struct tbox b = isolate_start();
    CHECK_INT(b.info.kind, SP_KIND_ISOLATE);
    CHECK_STR(ask(b.chan, "write /tmp/x"), "Read-only file system");
    CHECK_STR(ask(b.chan, "write /run/x"), "Read-only file system");
    CHECK_STR(ask(b.chan, "write /dev/x"), "Read-only file system");
    CHECK_STR(ask(b.chan, "cat /run/zygote.so"), "library\n");
    const char *files = ask(b.chan, "ls /run");
    CHECK(strstr(files, "driver ") && strstr(files, "call.bpf ") && strstr(files, "zygote.so ") && strlen(files) == 26);
    const char *m = ask(b.chan, "cat /proc/self/mountinfo");
    CHECK(!strstr(m, "hutch-spawn-test") && !strstr(m, "/home") && !strstr(m, "overlay") && !strstr(m, " /sys "));
    box_gone(&b);
    fx_stop();
}

TEST(isolate, has_no_rights_at_all)
{
    fx_start();
    struct tbox b = isolate_start();
    const char *st = ask(b.chan, "cat /proc/self/status");
    CHECK(strstr(st, "CapEff:\t0000000000000000") && strstr(st, "CapBnd:\t0000000000000000") && strstr(st, "CapPrm:\t0000000000000000"));
    CHECK(strstr(st, "Uid:\t1000\t1000\t1000\t1000") && strstr(st, "Gid:\t1000\t1000\t1000\t1000"));
    CHECK(strstr(st, "Seccomp:\t2") && strstr(st, "NoNewPrivs:\t1"));
    static const char *const denied[] = {"mount", "umount", "unshare", "clone_newuser", "keyctl", "fsopen", "setns", "syslog", "settime", "ptrace1", "mknod", "handle", "personality"};
    for (unsigned i = 0; i < sizeof denied / sizeof *denied; i++)
        expect_sys(b.chan, denied[i], "EPERM");
    CHECK_STR(ask(b.chan, "cat /proc/meminfo"), "No such file or directory"); /* of /proc only processes */
    CHECK_STR(ask(b.chan, "x32"), "signal 31");
    box_gone(&b);
    fx_stop();
}

TEST(isolate, is_limited_and_removed)
{
    fx_start();
    struct tbox b = isolate_start();
    struct sp_rep rep;
    struct err e;
    CHECK_STR(ask(b.chan, "eat 512"), "signal 9");
    CHECK_INT(call(SP_STAT, b.id, &rep, NULL, NULL, &e), 0);
    CHECK(rep.u.stat.oom_kills >= 1 && rep.u.stat.mem_peak <= 128u << 20 && !rep.u.stat.disk_bytes);
    box_gone(&b);
    CHECK_INT(call(SP_STAT, b.id, &rep, NULL, NULL, &e), -1);
    CHECK_INT(e.code, E_NOT_FOUND);
    fx_stop();
}

TEST(isolate, refuses_bad_requests)
{
    fx_start();
    struct sp_rep rep;
    struct err e;
    char id[SP_ID] = {0};
    id_make('b', id);
    for (uint32_t lang = 0; lang < 70000; lang = lang ? lang * 9 + SP_LANG_MAX : SP_LANG_MAX) {
        struct sp_req q = isolate_req(id);
        q.u.isolate.language = lang;
        CHECK_INT(spawn_call_sync(fx.fd, &q, NULL, 0, &rep, NULL, NULL, &fx.ev, 20000, &e), -1);
        CHECK_INT(e.code, E_INVALID);
    }
    struct sp_req q = isolate_req("../../etc/passwd-xxxxx");
    CHECK_INT(spawn_call_sync(fx.fd, &q, NULL, 0, &rep, NULL, NULL, &fx.ev, 20000, &e), -1);
    CHECK_INT(e.code, E_INVALID);
    q = isolate_req(id);
    q.u.isolate.limit.pids_max = 0;
    CHECK_INT(spawn_call_sync(fx.fd, &q, NULL, 0, &rep, NULL, NULL, &fx.ev, 20000, &e), -1);
    CHECK_INT(e.code, E_INVALID);
    q = isolate_req(id);
    strcpy(q.u.isolate.template_id, "t99999999999999999999");
    CHECK_INT(spawn_call_sync(fx.fd, &q, NULL, 0, &rep, NULL, NULL, &fx.ev, 20000, &e), -1);
    CHECK_INT(e.code, E_NOT_FOUND);
    /* a library that is not installed: said so, and nothing is left */
    CHECK_INT(sh("rm %s/bin/hutch-zygote.so", fx.dir), 0);
    q = isolate_req(id);
    CHECK_INT(spawn_call_sync(fx.fd, &q, NULL, 0, &rep, NULL, NULL, &fx.ev, 20000, &e), -1);
    CHECK(strstr(e.msg, "hutch-zygote.so"));
    CHECK_INT(call(SP_STAT, id, &rep, NULL, NULL, &e), -1);
    CHECK_INT(e.code, E_NOT_FOUND);
    fx_stop();
}

TEST_MAIN
