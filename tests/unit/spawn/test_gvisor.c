/* SP_GVISOR_START: what runsc gets, seen by a stand-in for it, and who may be it; then the real one, if this host has it. */
#include "fixture.h"
#include "spawn/runsc.h"

static struct sp_req gvisor_req(void)
{
    char id[SP_ID] = {0};
    id_make('b', id);
    struct sp_req q = box_req(id);
    q.op = SP_GVISOR_START;
    q.u.box.limit.pids_max = 512;
    return q;
}

static void gvisor_setup(const char *runsc)
{
    if (runsc)
        setenv("HUTCH_RUNSC", runsc, 1);
    else
        unsetenv("HUTCH_RUNSC"); /* then it is the one beside the spawner */
    fx_start();
}
/* The test's init, in runsc's place: it answers from inside the jail. */
static void stand_in(const char *mode)
{
    gvisor_setup(NULL);
    CHECK_INT(sh("cd %s && cp bin/hutch-agent bin/runsc && chmod %s bin/runsc", fx.dir, mode), 0);
}

static enum err_code refusal(struct sp_req q)
{
    struct sp_rep rep;
    struct err e = {0};
    int fds[3], n = 3;
    CHECK_INT(spawn_call_sync(fx.fd, &q, NULL, 0, &rep, fds, &n, &fx.ev, 20000, &e), -1);
    return e.code;
}

TEST(gvisor, bad_requests_are_refused)
{
    stand_in("755");
    struct sp_req q = gvisor_req();
    strcpy(q.u.box.id, "../../etc");
    CHECK_INT(refusal(q), E_INVALID);
    q = gvisor_req();
    strcpy(q.u.box.hostname, "a\",\"root\":{\"path\":\"/\"},\"x\":\"");
    CHECK_INT(refusal(q), E_INVALID);
    q = gvisor_req();
    q.u.box.disk_mib = 1;
    CHECK_INT(refusal(q), E_INVALID);
    q = gvisor_req();
    q.u.box.limit.memory_mib = 1;
    CHECK_INT(refusal(q), E_INVALID);
    fx_stop();
}

TEST(gvisor, without_runsc_it_is_unsupported)
{
    gvisor_setup("/nonexistent/runsc");
    struct sp_rep rep;
    struct err e;
    CHECK_INT(refusal(gvisor_req()), E_UNSUPPORTED);
    CHECK_INT(call(SP_LIST, NULL, &rep, NULL, NULL, &e), 0);
    CHECK_INT(rep.u.listing.n, 0);
    CHECK_INT(sh("test -z \"$(ls %s/home/boxes 2>/dev/null)\"", fx.dir),
              0); /* nothing of it is left */
    fx_stop();
}

TEST(gvisor, a_runsc_that_others_can_write_is_refused)
{
    stand_in("757");
    CHECK_INT(refusal(gvisor_req()), E_DENIED);
    CHECK_INT(sh("chmod 775 %s/bin/runsc", fx.dir), 0);
    CHECK_INT(refusal(gvisor_req()), E_DENIED);
    CHECK_INT(sh("chmod 755 %s/bin/runsc && chown 1000 %s/bin/runsc", fx.dir, fx.dir), 0);
    CHECK_INT(refusal(gvisor_req()), E_DENIED);
    fx_stop();
}

TEST(gvisor, runsc_is_jailed)
{
    stand_in("755");
    struct tbox b = box_start_req(gvisor_req());
    CHECK_INT(b.info.kind, SP_KIND_BOX);
    const char *st = ask(b.chan, "cat /proc/self/status");
    CHECK(strstr(st, "NoNewPrivs:\t1") && strstr(st, "Seccomp:\t2") &&
          strstr(st, "Uid:\t0\t0\t0\t0"));
    CHECK(!strstr(st, "CapBnd:\t000001ffffffffff"));
    CHECK(!strstr(ask(b.chan, "cat /proc/self/uid_map"),
                  "4294967295")); /* root of its own ids only */
    static const char *const denied[] = {"keyctl", "fsopen", "syslog", "settime",
                                         "mknod",  "handle", "bpf"};
    for (unsigned i = 0; i < sizeof denied / sizeof *denied; i++)
        expect_sys(b.chan, denied[i], "EPERM");
    expect_sys(b.chan, "io_uring", "ENOSYS");
    CHECK_STR(ask(b.chan, "ls /sys"), "No such file or directory");
    CHECK_STR(ask(b.chan, "write /x"), "Read-only file system");
    CHECK(!strstr(ask(b.chan, "cat /proc/self/mountinfo"),
                  "hutch-spawn-test")); /* no path of the host's */
    box_gone(&b);
    fx_stop();
}

TEST(gvisor, the_bundle_is_ours)
{
    stand_in("755");
    struct sp_req q = gvisor_req();
    q.u.box.limit.memory_mib = 200;
    struct tbox b = box_start_req(q);
    const char *config = ask(b.chan, "cat /config.json");
    CHECK(strstr(config, "\"hostname\":\"testbox\"") && strstr(config, "\"path\":\"/rootfs\"") &&
          strstr(config, "size=100m"));
    CHECK(strstr(ask(b.chan, "cat /proc/meminfo"),
                 "MemTotal: 204800 kB")); /* what the guest is to believe */
    CHECK(strstr(ask(b.chan, "ls /rootfs"), "sbin"));
    CHECK(strstr(ask(b.chan, "cat /proc/self/cmdline"), "runsc"));
    box_gone(&b);
    fx_stop();
}

TEST(gvisor, the_real_one_runs_and_goes)
{
    char path[512];
    const char *cached = ".cache/runsc";
    if (!getenv("HUTCH_RUNSC") && !access(cached, X_OK) && realpath(cached, path))
        setenv("HUTCH_RUNSC", path, 1);
    if (!runsc_find("/nonexistent", path, sizeof path))
        SKIP("runsc is not installed");
    gvisor_setup(path);
    struct tbox b = box_start_req(gvisor_req());
    CHECK(strstr(ask(b.chan, "cat /proc/version"), "gvisor"));
    CHECK(strstr(ask(b.chan, "cat /proc/meminfo"), "131072 kB"));
    CHECK_STR(ask(b.chan, "write /etc/x"), "OK"); /* into its layer */
    struct sp_rep rep;
    struct err e;
    CHECK_INT(call(SP_STAT, b.id, &rep, NULL, NULL, &e), 0);
    CHECK(rep.u.stat.mem_bytes && rep.u.stat.disk_bytes);
    box_gone(&b);
    fx_stop();
}

TEST(gvisor, where_runsc_is)
{
    char path[512];
    strcpy(fx.dir, "/tmp/hutch-runsc-test-XXXXXX");
    CHECK(mkdtemp(fx.dir));
    unsetenv("HUTCH_RUNSC");
    CHECK_INT(sh("touch %s/runsc", fx.dir), 0);
    CHECK(!runsc_find(fx.dir, path, sizeof path) ||
          strncmp(path, fx.dir, strlen(fx.dir))); /* it cannot be run */
    CHECK_INT(sh("chmod 755 %s/runsc", fx.dir), 0);
    CHECK(runsc_find(fx.dir, path, sizeof path) && !strncmp(path, fx.dir, strlen(fx.dir)));
    setenv("HUTCH_RUNSC", "/nonexistent", 1);
    CHECK(!runsc_find(fx.dir, path, sizeof path)); /* no other in its place */
    sh("rm -rf %s", fx.dir);
}

TEST_MAIN
