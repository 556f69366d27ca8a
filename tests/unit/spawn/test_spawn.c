/* Containers from the outside and the inside. As root, with the test init. */
#define TEST_SECONDS 90
#include "fixture.h"


TEST(box, has_its_own_ids_names_and_processes)
{
    fx_start();
    struct tbox b = box_start();
    CHECK_STR(ask(b.chan, "ids"), "1 0 0 0");
    CHECK_STR(ask(b.chan, "host"), "testbox");
    char want[64];
    snprintf(want, sizeof want, "         0 %10u      65536", b.info.uid_base);
    CHECK(strstr(ask(b.chan, "cat /proc/self/uid_map"), want));
    CHECK(strstr(ask(b.chan, "cat /proc/self/gid_map"), want));
    CHECK(b.info.uid_base >= 0x70000000u);
    const char *cg = ask(b.chan, "cat /proc/self/cgroup");
    CHECK(!strstr(cg, "hutch-") && !strstr(cg, ".."));
    const char *net = ask(b.chan, "cat /proc/net/dev");
    CHECK(strstr(net, "lo:") && !strstr(net, "eth") && !strstr(net, "ens"));
    CHECK(strstr(ask(b.chan, "cat /sys/class/net/lo/flags"), "0x9")); /* up */
    CHECK(!strcmp(ask(b.chan, "fds"), "0 1 2 3 4 5 ") || !strcmp(ask(b.chan, "fds"), "0 1 2 3 4 "));
    box_gone(&b);
    fx_stop();
}

TEST(box, sees_no_host_path)
{
    fx_start();
    struct tbox b = box_start();
    const char *m = ask(b.chan, "cat /proc/self/mountinfo");
    CHECK(strstr(m, " / / ") && strstr(m, "overlay"));
    CHECK(!strstr(m, "hutch-spawn-test") && !strstr(m, "/home") && !strstr(m, "loop") && !strstr(m, "/tmp"));
    CHECK_STR(ask(b.chan, "ls /sys/block"), "");
    CHECK_STR(ask(b.chan, "ls /sys/devices/virtual/block"), "");
    box_gone(&b);
    fx_stop();
}

TEST(box, hides_and_protects_kernel_files)
{
    fx_start();
    struct tbox b = box_start(), c = box_start();
    CHECK_STR(ask(b.chan, "cat /proc/kcore"), access("/proc/kcore", F_OK) ? "No such file or directory" : "");
    CHECK_STR(ask(b.chan, "cat /proc/keys"), "");
    CHECK_STR(ask(b.chan, "cat /proc/timer_list"), "");
    CHECK_STR(ask(b.chan, "ls /proc/scsi"), access("/proc/scsi", F_OK) ? "No such file or directory" : "");
    CHECK_STR(ask(b.chan, "write /proc/sys/kernel/domainname"), "Read-only file system");
    if (!access("/proc/sysrq-trigger", F_OK))
        CHECK_STR(ask(b.chan, "write /proc/sysrq-trigger"), "OK"); /* it is /dev/null */
    CHECK_STR(ask(b.chan, "write /dev/sda"), "Read-only file system");
    CHECK_STR(ask(b.chan, "write /sys/x"), "Read-only file system");
    char id[64];
    snprintf(id, sizeof id, "%s", ask(b.chan, "cat /proc/sys/kernel/random/boot_id"));
    CHECK_INT(strlen(id), 37);
    CHECK(strcmp(id, ask(c.chan, "cat /proc/sys/kernel/random/boot_id")));
    CHECK_STR(ask(b.chan, "ls /run"), "");
    CHECK_STR(ask(b.chan, "write /dev/null"), "OK");
    CHECK(!strcmp(ask(b.chan, "write /dev/shm/x"), "OK") && !strcmp(ask(b.chan, "write /run/x"), "OK") && !strcmp(ask(b.chan, "write /tmp/x"), "OK"));
    box_gone(&b), box_gone(&c);
    fx_stop();
}

TEST(box, has_few_capabilities_and_a_filter)
{
    fx_start();
    struct tbox b = box_start();
    const char *st = ask(b.chan, "cat /proc/self/status");
    CHECK(strstr(st, "CapEff:\t00000000b0aca5ff") && strstr(st, "CapBnd:\t00000000b0aca5ff") && strstr(st, "CapInh:\t0000000000000000"));
    CHECK(strstr(st, "Seccomp:\t2") && strstr(st, "NoNewPrivs:\t0"));
    static const char *const denied[] = {"mount", "umount", "unshare", "clone_newuser", "keyctl", "fsopen", "setns", "syslog", "settime",
                                         "tiocsti", "ptrace1", "mknod", "handle", "personality"};
    for (unsigned i = 0; i < sizeof denied / sizeof *denied; i++)
        expect_sys(b.chan, denied[i], "EPERM");
    expect_sys(b.chan, "clone3", "ENOSYS");
    expect_sys(b.chan, "io_uring", "ENOSYS");
    expect_sys(b.chan, "bpf", "ENOSYS");
    CHECK(strcmp(ask(b.chan, "sys sysctl"), "OK"));
    CHECK_STR(ask(b.chan, "x32"), "signal 31");
    box_gone(&b);
    fx_stop();
}

TEST(box, cannot_eat_the_host)
{
    fx_start();
    struct tbox b = box_start();
    struct sp_rep rep;
    struct err e;
    CHECK_STR(ask(b.chan, "eat 512"), "signal 9");
    CHECK_INT(call(SP_STAT, b.id, &rep, NULL, NULL, &e), 0);
    CHECK(rep.u.stat.oom_kills >= 1 && rep.u.stat.mem_peak <= 128u << 20 && rep.u.stat.cpu_ns > 0);
    CHECK_INT(rep.u.stat.disk_bytes > 32u << 20 && rep.u.stat.disk_bytes <= 64u << 20, 1);
    int n = atoi(ask(b.chan, "bomb"));
    CHECK(n > 30 && n < 64);
    int mib = atoi(ask(b.chan, "fill"));
    CHECK(mib > 20 && mib < 64);
    box_gone(&b);
    char id[SP_ID] = {0};
    id_make('i', id);
    struct sp_req q = box_req(id);
    q.u.box.inodes = 2048;
    b = box_start_req(q);
    n = atoi(ask(b.chan, "inodes"));
    CHECK(n > 1000 && n <= 2048 + 64);
    box_gone(&b);
    fx_stop();
}

TEST(box, exit_is_reported_and_kept)
{
    fx_start();
    struct tbox b = box_start();
    struct sp_rep rep;
    struct sp_exit x;
    struct err e;
    ask(b.chan, "stderr last words");
    CHECK(fd_write_all(b.chan, "exit 7\n", 7));
    CHECK_INT(spawn_wait_exit(fx.fd, b.id, &x, &fx.ev, 10000, &e), 0);
    CHECK_INT(x.code, 7);
    CHECK_INT(x.signaled, 0);
    CHECK_INT(call(SP_ATTACH, b.id, &rep, NULL, NULL, &e), -1);
    CHECK_INT(e.code, E_GONE);
    CHECK_INT(rep.u.exit.code, 7);
    CHECK_INT(sh("grep -q 'last words' %s/log", fx.dir), 0);
    box_gone(&b);
    CHECK_INT(call(SP_ATTACH, b.id, &rep, NULL, NULL, &e), -1);
    CHECK_INT(e.code, E_NOT_FOUND);
    CHECK_INT(call(SP_REMOVE, b.id, &rep, NULL, NULL, &e), 0); /* again: fine */
    fx_stop();
}

TEST(box, survives_the_daemon_and_is_adopted)
{
    fx_start();
    struct tbox b = box_start(), dies = box_start();
    struct sp_rep rep;
    struct err e;
    int fds[3], n = 3;
    close(b.chan), close(b.pidfd), close(fx.fd);
    CHECK(fd_write_all(dies.chan, "exit 3\n", 7)); /* while nobody is connected */
    struct pollfd p = {.fd = dies.pidfd, .events = POLLIN};
    CHECK_INT(poll(&p, 1, 10000), 1);
    fx_connect();
    CHECK_INT(call(SP_ATTACH, b.id, &rep, fds, &n, &e), 0);
    CHECK_INT(n, 2);
    CHECK_INT(rep.u.info.alive, 1);
    CHECK_STR(ask(fds[1], "ids"), "1 0 0 0");
    b.pidfd = fds[0], b.chan = fds[1];
    struct sp_req q = {.op = SP_LIST};
    CHECK_INT(spawn_call_sync(fx.fd, &q, NULL, 0, &rep, NULL, NULL, &fx.ev, 20000, &e), 0);
    CHECK_INT(rep.u.listing.n, 2);
    for (unsigned i = 0; i < 2; i++)
        CHECK_INT(rep.u.listing.item[i].alive, strcmp(rep.u.listing.item[i].id, b.id) == 0);
    CHECK_INT(call(SP_ATTACH, dies.id, &rep, NULL, NULL, &e), -1);
    CHECK_INT(rep.u.exit.code, 3);
    int second = spawn_connect(fx.sock, &e); /* a new connection replaces the old one */
    CHECK(second >= 0);
    struct pollfd hup = {.fd = fx.fd, .events = POLLIN};
    CHECK_INT(poll(&hup, 1, 5000), 1);
    close(fx.fd);
    fx.fd = second;
    box_gone(&b), box_gone(&dies);
    fx_stop();
}

TEST(box, freezes_and_takes_new_limits)
{
    fx_start();
    struct tbox b = box_start();
    struct sp_rep rep;
    struct err e;
    CHECK_INT(call(SP_FREEZE, b.id, &rep, NULL, NULL, &e), 0);
    usleep(50000);
    CHECK(fd_write_all(b.chan, "ids\n", 4));
    struct pollfd p = {.fd = b.chan, .events = POLLIN};
    CHECK_INT(poll(&p, 1, 300), 0);
    CHECK_INT(call(SP_THAW, b.id, &rep, NULL, NULL, &e), 0);
    CHECK_INT(poll(&p, 1, 5000), 1);
    char t[64] = "";
    for (size_t n = 0; !strstr(t, "\n.\n");) {
        ssize_t r = read(b.chan, t + n, sizeof t - 1 - n);
        CHECK(r > 0);
        n += (size_t)r;
    }
    struct sp_req q = {.op = SP_LIMITS, .u.limits = {.limit = {.memory_mib = 256, .cpu_millis = 500, .pids_max = 32}}};
    strcpy(q.u.limits.id, b.id);
    CHECK_INT(spawn_call_sync(fx.fd, &q, NULL, 0, &rep, NULL, NULL, &fx.ev, 20000, &e), 0);
    CHECK_STR(ask(b.chan, "eat 200"), "exit 0");
    CHECK(atoi(ask(b.chan, "bomb")) < 32);
    CHECK_INT(call(SP_FREEZE, b.id, &rep, NULL, NULL, &e), 0);
    box_gone(&b); /* frozen ones die too */
    fx_stop();
}

TEST(box, refuses_bad_requests)
{
    fx_start();
    struct sp_rep rep;
    struct err e;
    char id[SP_ID] = {0};
    id_make('i', id);
    struct sp_req q = box_req("../../etc/passwd-xxxxx");
    CHECK_INT(spawn_call_sync(fx.fd, &q, NULL, 0, &rep, NULL, NULL, &fx.ev, 20000, &e), -1);
    CHECK_INT(e.code, E_INVALID);
    q = box_req(id);
    memset(q.u.box.hostname, 'a', sizeof q.u.box.hostname);
    CHECK_INT(spawn_call_sync(fx.fd, &q, NULL, 0, &rep, NULL, NULL, &fx.ev, 20000, &e), -1);
    CHECK_INT(e.code, E_INVALID);
    q = box_req(id);
    q.u.box.limit.memory_mib = 1;
    CHECK_INT(spawn_call_sync(fx.fd, &q, NULL, 0, &rep, NULL, NULL, &fx.ev, 20000, &e), -1);
    CHECK_INT(e.code, E_INVALID);
    q = box_req(id);
    strcpy(q.u.box.template_id, "t99999999999999999999");
    CHECK_INT(spawn_call_sync(fx.fd, &q, NULL, 0, &rep, NULL, NULL, &fx.ev, 20000, &e), -1);
    CHECK_INT(e.code, E_NOT_FOUND);
    /* the kernel calls an image that is none invalid, but the request was not */
    CHECK_INT(sh("mkdir -p %s/home/templates/t88888888888888888888 && truncate -s 1M %s/home/templates/t88888888888888888888/rootfs.ext4", fx.dir, fx.dir), 0);
    q = box_req(id);
    strcpy(q.u.box.template_id, "t88888888888888888888");
    CHECK_INT(spawn_call_sync(fx.fd, &q, NULL, 0, &rep, NULL, NULL, &fx.ev, 20000, &e), -1);
    CHECK_INT(e.sys, EINVAL);
    CHECK_INT(e.code, E_INTERNAL);
    struct tbox b = box_start_req(box_req(id));
    q = box_req(id);
    CHECK_INT(spawn_call_sync(fx.fd, &q, NULL, 0, &rep, NULL, NULL, &fx.ev, 20000, &e), -1);
    CHECK_INT(e.code, E_CONFLICT);
    q = (struct sp_req){.op = 999};
    CHECK_INT(spawn_call_sync(fx.fd, &q, NULL, 0, &rep, NULL, NULL, &fx.ev, 20000, &e), -1);
    CHECK_INT(e.code, E_UNSUPPORTED);
    /* a broken agent: the step is named and nothing is left */
    CHECK_INT(sh("echo garbage > %s/bin/new && mv %s/bin/new %s/bin/hutch-agent", fx.dir, fx.dir, fx.dir), 0);
    id_make('i', id);
    q = box_req(id);
    CHECK_INT(spawn_call_sync(fx.fd, &q, NULL, 0, &rep, NULL, NULL, &fx.ev, 20000, &e), -1);
    CHECK(strstr(e.msg, "jail: exec"));
    box_gone(&b);
    fx_stop();
}

/* Cut to our size it would be a good request: its length tells that it is not. */
TEST(spawner, refuses_a_longer_message)
{
    struct { struct sp_req q; char more; } big = {.q = {.version = SP_VERSION, .op = SP_HELLO, .seq = 1}};
    struct sp_rep rep;
    struct pollfd p;
    fx_start();
    p = (struct pollfd){.fd = fx.fd, .events = POLLIN};
    CHECK_INT(send(fx.fd, &big, sizeof big.q + 1, 0), sizeof big.q + 1);
    CHECK_INT(poll(&p, 1, 20000), 1);
    CHECK_INT(recv(fx.fd, &rep, sizeof rep, MSG_DONTWAIT), 0);
    fx_stop();
}

TEST(spawner, one_per_home)
{
    fx_start();
    pid_t first = fx.pid;
    int fd = fx.fd, st;
    fx_spawner();
    CHECK_INT(waitpid(fx.pid, &st, 0), fx.pid);
    CHECK(WIFEXITED(st) && WEXITSTATUS(st));
    fx.pid = first, fx.fd = fd;
    struct tbox b = box_start();
    box_gone(&b);
    fx_stop();
}

/* Nobody who sees its control groups takes its ids or its tree, also without its network namespace or its files. */
TEST(spawner, its_own_is_marked)
{
    fx_start();
    struct tbox b = box_start();
    struct cgroup_host h;
    struct err e;
    CHECK_INT(cgroup_host_open(&h, "/proc/self/mountinfo", fx.tag, &e), -1);
    CHECK_INT(e.code, E_CONFLICT);
    char tag[32];
    snprintf(tag, sizeof tag, "hutch-t%d", (int)getpid());
    CHECK_INT(cgroup_host_open(&h, "/proc/self/mountinfo", tag, &e), 0);
    CHECK(cgroup_host_claim(&h, (b.info.uid_base - 0x70000000u) / (SLOTS * SLOT_IDS)) < 0 && errno == EAGAIN);
    cgroup_host_close(&h, true);
    box_gone(&b);
    fx_stop();
}

/* And does not take another one's: the ids it would choose are claimed by one it shares no names of sockets with. */
TEST(spawner, leaves_ids_to_whoever_claimed_them)
{
    fx_start();
    struct tbox b = box_start();
    struct cgroup_host h;
    struct err e;
    int st = 0, claim = -1;
    unsigned window = (b.info.uid_base - 0x70000000u) / (SLOTS * SLOT_IDS);
    box_gone(&b);
    close(fx.fd);
    kill(fx.pid, SIGTERM);
    CHECK_INT(waitpid(fx.pid, &st, 0), fx.pid);
    char tag[32];
    snprintf(tag, sizeof tag, "hutch-t%d", (int)getpid());
    CHECK_INT(cgroup_host_open(&h, "/proc/self/mountinfo", tag, &e), 0);
    for (int i = 0; i < 100 && (claim = cgroup_host_claim(&h, window)) < 0;
         i++) /* a child of it may have the old one for a moment more */
        usleep(10000);
    CHECK(claim >= 0);
    fx_spawner();
    fx_connect();
    b = box_start();
    CHECK((b.info.uid_base - 0x70000000u) / (SLOTS * SLOT_IDS) != window);
    close(claim);
    cgroup_host_close(&h, true);
    box_gone(&b);
    fx_stop();
}

/* Of the daemon, a second name, open to others: whatever root did not write alone is not mounted, and stays as it was. */
TEST(spawner, mounts_no_foreign_layer)
{
    static const char *const spoil[] = {"chown 64882 upper.ext4",
                                        "ln upper.ext4 second",
                                        "chmod 666 upper.ext4",
                                        "mv upper.ext4 x && ln -s x upper.ext4",
                                        "mv upper.ext4 x && mkdir upper.ext4",
                                        "mv upper.ext4 x && mkfifo upper.ext4"};
    fx_start();
    for (size_t i = 0; i < sizeof spoil / sizeof *spoil; i++) {
        struct sp_req q = box_req("i00000000000000000foe");
        struct sp_rep rep;
        struct err e = {0};
        int fds[3], n = 3;
        q.u.box.disk_mib = 64;
        CHECK_INT(
            sh("cd %s/home && rm -rf boxes/i00000000000000000foe && mkdir -p boxes/i00000000000000000foe && cd boxes/i00000000000000000foe && mkdir -p /tmp/foe.$$/upper /tmp/foe.$$/work && "
               "mkfs.ext4 -q -F -E nodiscard -d /tmp/foe.$$ upper.ext4 64m >/dev/null 2>&1 && rm -r /tmp/foe.$$ && %s",
               fx.dir, spoil[i]),
            0);
        CHECK(spawn_call_sync(fx.fd, &q, NULL, 0, &rep, fds, &n, &fx.ev, 20000, &e));
        printf("# %s: %s\n", spoil[i], e.msg);
        CHECK_INT(
            sh("cat /sys/block/loop*/loop/backing_file 2>/dev/null | grep -q '%s/home/boxes/'",
               fx.dir) != 0,
            1);
        CHECK_INT(sh("test -e %s/home/boxes/i00000000000000000foe/upper.ext4", fx.dir), 0);
    }
    CHECK_INT(sh("rm -rf %s/home/boxes/i00000000000000000foe", fx.dir), 0);
    fx_stop();
}

/* An empty disk that root did not write is made anew. */
TEST(spawner, copies_no_foreign_disk)
{
    fx_start();
    CHECK_INT(
        sh("cd %s/home/fs && mkdir -p /tmp/foe.$$/upper/planted /tmp/foe.$$/work && mkfs.ext4 -q -F -E nodiscard -d /tmp/foe.$$ 128.ext4 128m >/dev/null 2>&1 && rm -r /tmp/foe.$$ && "
           "chown 64882 128.ext4 && ln -s /etc/hostname 192.ext4",
           fx.dir),
        0);
    for (unsigned mib = 128; mib <= 192; mib += 64) {
        char id[SP_ID] = {0};
        id_make('i', id);
        struct sp_req q = box_req(id);
        q.u.box.disk_mib = mib;
        struct tbox b = box_start_req(q);
        CHECK_INT(sh("test $(stat -c '%%u %%F' %s/home/fs/%u.ext4 | tr ' ' _) = 0_regular_file",
                     fx.dir, mib),
                  0);
        CHECK_INT(sh("debugfs -R 'ls /upper' %s/home/fs/%u.ext4 2>/dev/null | grep -q planted",
                     fx.dir, mib) != 0,
                  1);
        box_gone(&b);
    }
    fx_stop();
}

/* A layer that is mounted is not mounted again, whatever it is called by now. */
TEST(spawner, mounts_a_layer_once)
{
    fx_start();
    struct tbox b = box_start();
    struct sp_req q = box_req("i000000000000000twice");
    struct sp_rep rep;
    struct err e = {0};
    int fds[3], n = 3;
    CHECK_INT(
        sh("cd %s/home/boxes && mkdir i000000000000000twice && mv %s/upper.ext4 i000000000000000twice/",
           fx.dir, b.id),
        0);
    CHECK(spawn_call_sync(fx.fd, &q, NULL, 0, &rep, fds, &n, &fx.ev, 20000, &e));
    CHECK(strstr(e.msg, "still in use"));
    CHECK_INT(
        sh("cd %s/home/boxes && mv i000000000000000twice/upper.ext4 %s/ && rmdir i000000000000000twice",
           fx.dir, b.id),
        0);
    box_gone(&b);
    fx_stop();
}

/* SIGKILL of the spawner: every box dies with it, and the next one cleans up. */
TEST(spawner, takes_its_boxes_along)
{
    int mounts = census().mounts;
    struct census after;
    fx_start();
    struct tbox b[3];
    for (int i = 0; i < 3; i++) {
        b[i] = box_start();
        ask(b[i].chan, "orphan");
    }
    kill(fx.pid, SIGKILL);
    waitpid(fx.pid, NULL, 0);
    for (int i = 0; i < 3; i++) {
        struct pollfd p = {.fd = b[i].pidfd, .events = POLLIN};
        CHECK_INT(poll(&p, 1, 10000), 1);
        close(b[i].pidfd), close(b[i].chan);
    }
    close(fx.fd);
    struct sp_rep rep;
    struct err e;
    for (int fd; (fd = spawn_connect(fx.sock, &e)) >= 0; usleep(1000)) /* a jail being made may have the old socket for a moment more */
        close(fd);
    fx_spawner();
    fx_connect();
    struct sp_req q = {.op = SP_LIST};
    CHECK_INT(spawn_call_sync(fx.fd, &q, NULL, 0, &rep, NULL, NULL, &fx.ev, 20000, &e), 0);
    CHECK_INT(rep.u.listing.n, 0);
    for (int i = 0; i < 3; i++)
        CHECK_INT(call(SP_REMOVE, b[i].id, &rep, NULL, NULL, &e), 0);
    CHECK_INT(sh("test -z \"$(ls %s/home/boxes)\"", fx.dir), 0);
    fx_stop();
    for (int i = 0; i < 100; i++) {
        after = census();
        if (!after.loops)
            break;
        usleep(50000);
    }
    CHECK_INT(after.loops, 0);
    CHECK_INT(after.cgroups, 0);
    CHECK_INT(after.mounts, mounts);
}

/* Files leave after the answer to SP_REMOVE. */
static void wait_files_gone(void)
{
    for (int i = 0; i < 400 && sh("test -z \"$(ls %s/home/boxes)\"", fx.dir); i++)
        usleep(50000);
    CHECK_INT(sh("test -z \"$(ls %s/home/boxes)\"", fx.dir), 0);
}

/* Jails made ahead: they are taken, made again, missed when killed, and gone with the spawner. */
TEST(spawner, makes_jails_ahead)
{
    fx_start();
    char ready[96], kill_them[160], kill_jailer[160];
    snprintf(kill_jailer, sizeof kill_jailer, "ps -o pid=,comm= --ppid %d | awk '$2 == \"hutch-jailer\" {print $1}' | xargs kill -9", (int)fx.pid);
    snprintf(ready, sizeof ready, "ps -o comm= --ppid %d | grep -c hutch-ready", (int)fx.pid);
    snprintf(kill_them, sizeof kill_them, "ps -o pid=,comm= --ppid %d | awk '$2 == \"hutch-ready\" {print $1}' | xargs kill -9", (int)fx.pid);
    CHECK_INT(count_lines(ready), 0); /* nobody asked for a container yet */
    for (int round = 0; round < 3; round++) {
        if (round == 2)
            CHECK_INT(sh("%s", kill_jailer), 0); /* then the spawner makes them, when it has nothing else to do */
        struct tbox b = box_start(), c = box_start();
        CHECK_STR(ask(b.chan, "host"), "testbox");
        for (int i = 0; i < 400 && count_lines(ready) < READY_DEPTH; i++)
            usleep(20000);
        CHECK_INT(count_lines(ready), READY_DEPTH);
        box_gone(&b);
        box_gone(&c);
        CHECK_INT(sh("%s", kill_them), 0);
        for (int i = 0; i < 400 && count_lines(ready); i++) /* one that is dying while it is taken fails its start, as one that dies later does */
            usleep(20000);
    }
    struct tbox d = box_start();
    box_gone(&d);
    fx_stop();
    CHECK_INT(census().cgroups, 0);
}

TEST(spawner, leaks_nothing)
{
    int mounts = census().mounts;
    struct census after;
    fx_start();
    char cmd[64], ready[96];
    snprintf(ready, sizeof ready, "ls -l /proc/%d/fd | grep -c pidfd", (int)fx.pid); /* handed over by the jailer, not only born */
    for (int i = 0; i < 6; i++) { /* the template and the pool are there */
        struct tbox b = box_start();
        box_gone(&b);
    }
    wait_files_gone();
    for (int i = 0; i < 400 && count_lines(ready) < READY_DEPTH; i++) /* jails made ahead are descriptors too */
        usleep(20000);
    snprintf(cmd, sizeof cmd, "ls /proc/%d/fd | wc -l", (int)fx.pid);
    int fds = count_lines(cmd), fds2 = 0;
    for (int same = 0; same < 15;) { /* so are layers for the next ones: until no more come */
        usleep(20000);
        int now = count_lines(cmd);
        same = now == fds ? same + 1 : 0;
        fds = now;
    }
    for (int i = 0; i < 40; i++) {
        struct tbox b = box_start();
        if (i % 3 == 0)
            ask(b.chan, "orphan");
        box_gone(&b);
    }
    wait_files_gone();
    for (int i = 0; i < 400; i++) { /* layers for the next ones come back into the reserve */
        fds2 = count_lines(cmd);
        if (fds2 <= fds + 1 && fds2 >= fds - 5)
            break;
        usleep(50000);
    }
    CHECK(fds2 <= fds + 1 && fds2 >= fds - 5);
    snprintf(cmd, sizeof cmd, "ps -o stat= --ppid %d | grep -c Z", (int)fx.pid);
    CHECK_INT(count_lines(cmd), 0);
    fx_stop();
    for (int i = 0; i < 100; i++) {
        after = census();
        if (!after.loops)
            break;
        usleep(50000);
    }
    CHECK_INT(after.loops, 0);
    CHECK_INT(after.cgroups, 0);
    CHECK_INT(after.mounts, mounts);
}

TEST_MAIN
