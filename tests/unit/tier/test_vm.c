/* The whole chain for real: hutch-spawn on a temporary home, QEMU in its jail,
 * the guest kernel, hutch-agent. Needs root, QEMU, the programs beside this
 * one's build directory, and a kernel: HUTCH_TEST_KERNEL = output of
 * share/tools/kernel.sh. Skips with a reason otherwise. */
#define TEST_SECONDS 240
#include "tier/vm/kvmprobe.h"
#include "tier/vm/vm.h"
#include "base/buf.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/enc.h"
#include "base/fd.h"
#include "base/str.h"
#include "loop/job.h"
#include "loop/loop.h"
#include "spawn/client.h"
#include "test.h"
#include "wire/frame.h"
#include "wire/msg.h"
#include "wire/rec.h"
#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>

#define QEMU "/usr/bin/qemu-system-x86_64"
#define TID  "taaaaaaaaaaaaaaaaaaaa"

/* ---- a world: home, spawner, loop, host ---- */

static char home[] = "/tmp/hutch-vm-XXXXXX";
static char bin[PATH_MAX];
static pid_t spawner;
static struct loop *loop;
static struct jobs *jobs;
static struct spawn_client *client;
static struct vm_host *host;
static int home_fd, kernel_fd, agent_fd;
static struct vm_spec spec = {.template_id = TID, .ram_mib = 256, .vcpus = 1, .disk_mib = 512};

static void run(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
static void run(const char *fmt, ...)
{
    char cmd[1024];
    va_list ap;
    va_start(ap, fmt);
    (void)vsnprintf(cmd, sizeof cmd, fmt, ap);
    va_end(ap);
    CHECK_INT(system(cmd), 0);
}

static bool until(const int *flag, int seconds)
{
    int64_t end = clock_mono() + seconds * NS_PER_S;
    while (!*flag && clock_mono() < end) {
        loop_turn(loop, false);
        if (!*flag)
            (void)usleep(200);
    }
    return *flag;
}

static void on_spawner_lost(void *ctx, const struct err *e)
{
    (void)ctx;
    printf("# spawner lost: %s\n", e->msg);
    CHECK(!"the spawner is there");
}
static void on_exit_event(void *ctx, const struct sp_exit *x)
{
    (void)ctx;
    printf("# %s ended: %s %d\n", x->id, x->signaled ? "signal" : "status", x->code);
}

static void teardown(void)
{
    if (spawner > 0) {
        (void)kill(spawner, SIGTERM);
        for (int i = 0; i < 200 && !waitpid(spawner, NULL, WNOHANG); i++)
            (void)usleep(10000);
    }
    char cmd[128];
    (void)snprintf(cmd, sizeof cmd, "umount -R %s 2>/dev/null; rm -rf --one-file-system %s", home,
                   home);
    (void)!system(cmd);
}

static char sock[128];
static void connect_world(int64_t boot_timeout_ns)
{
    struct err e = {0};
    loop = loop_new();
    jobs = jobs_new(loop, 2);
    client = spawn_client_new(loop, sock, on_exit_event, on_spawner_lost, NULL, &e);
    if (!client)
        printf("# %s\n", e.msg);
    CHECK(client);
    struct vm_host_conf conf = {.loop = loop,
                                .jobs = jobs,
                                .spawn = client,
                                .home_fd = home_fd,
                                .accel = SP_ACCEL_TCG,
                                .tsc_khz = tsc_khz_measure(),
                                .boot_timeout_ns = boot_timeout_ns};
    CHECK_INT(vm_qemu_version(QEMU, conf.qemu_version, &e), 0);
    host = vm_host_new(&conf);
    CHECK(!vm_host_ready(host));
    CHECK_INT(vm_host_load(host, kernel_fd, agent_fd, &e), 0);
}
static void disconnect_world(void)
{
    vm_host_free(host);
    spawn_client_free(client);
    jobs_free(jobs);
    loop_free(loop);
}

static void setup(int64_t boot_timeout_ns)
{
    const char *kernel = getenv("HUTCH_TEST_KERNEL");
    if (geteuid())
        SKIP("needs root");
    if (!kernel || (kernel_fd = open(kernel, O_DIRECTORY | O_CLOEXEC)) < 0)
        SKIP("HUTCH_TEST_KERNEL names no kernel directory (share/tools/kernel.sh makes one)");
    if (access(QEMU, X_OK))
        SKIP("QEMU is not installed");
    ssize_t n = readlink("/proc/self/exe", bin, sizeof bin - 1);
    CHECK(n > 0);
    bin[n] = '\0';
    for (int up = 0; up < 3; up++)
        *strrchr(bin, '/') = '\0';
    if (getenv("HUTCH_TEST_BIN"))
        (void)snprintf(bin, sizeof bin, "%s", getenv("HUTCH_TEST_BIN"));
    char path[PATH_MAX + 32];
    (void)snprintf(path, sizeof path, "%s/hutch-agent", bin);
    if ((agent_fd = open(path, O_RDONLY | O_CLOEXEC)) < 0)
        SKIP("hutch-agent is not built");
    (void)snprintf(path, sizeof path, "%s/hutch-spawn", bin);
    if (access(path, X_OK))
        SKIP("hutch-spawn is not built");

    CHECK(mkdtemp(home));
    CHECK(!chmod(home, 0755));
    atexit(teardown);
    run("mkdir -p %s/run %s/boxes %s/templates/" TID
        " %s/tree/etc %s/tree/root %s/tree/tmp && cd %s/tree && printf 'root:x:0:0::/root:/bin/sh\\n' >etc/passwd && "
        "printf 'root:x:0:\\n' >etc/group && echo base >etc/note && PATH=$PATH:/sbin:/usr/sbin mke2fs -q -t ext4 -d . ../templates/" TID
        "/rootfs.ext4 48M >/dev/null && rm -rf %s/tree",
        home, home, home, home, home, home, home, home);
    char run_dir[64];
    (void)snprintf(run_dir, sizeof run_dir, "%s/run", home);
    fflush(stdout);
    spawner = fork();
    if (!spawner) {
        (void)prctl(PR_SET_PDEATHSIG, SIGTERM); /* a failed CHECK leaves none behind */
        execl(path, "hutch-spawn", "--home", home, "--run", run_dir, "--share", "share", "--bin",
              bin, NULL);
        _exit(127);
    }
    (void)snprintf(sock, sizeof sock, "%s/spawn.sock", run_dir);
    for (int i = 0; i < 500 && access(sock, F_OK); i++)
        (void)usleep(10000);
    home_fd = open(home, O_DIRECTORY | O_CLOEXEC);
    connect_world(boot_timeout_ns);
}
static void close_world(void)
{
    for (int i = 0; i < 50; i++) {
        loop_turn(loop, false);
        (void)usleep(1000);
    }
    disconnect_world();
    (void)close(home_fd);
    (void)close(kernel_fd);
    (void)close(agent_fd);
}

/* ---- the agent protocol, blocking, as little as is needed ---- */

struct talk {
    int fd;
    struct frame_reader rd;
    struct buf in;
    uint32_t epoch, stream;
};

static bool talk_frame(struct talk *t, struct frame *f, bool want_sync, int64_t end)
{
    static unsigned char payload[FRAME_MAX];
    for (;;) {
        size_t used = 0;
        enum frame_result r = frame_next(&t->rd, (unsigned char *)t->in.p, t->in.n, &used, f);
        if (r == FRAME_GOT && f->n)
            memcpy(payload, f->p, f->n), f->p = payload;
        buf_drop(&t->in, used);
        if (r == FRAME_BAD)
            return false;
        if (r == (want_sync ? FRAME_SYNC : FRAME_GOT))
            return true;
        if (r != FRAME_MORE)
            continue;
        struct pollfd p = {.fd = t->fd, .events = POLLIN};
        int64_t left = end - clock_mono();
        char chunk[4096];
        if (left <= 0 || poll(&p, 1, (int)(left / NS_PER_MS) + 1) != 1)
            return false;
        ssize_t n = recv(t->fd, chunk, sizeof chunk, MSG_DONTWAIT);
        if (n <= 0)
            return false;
        buf_put(&t->in, chunk, (size_t)n);
    }
}
static void talk_send(struct talk *t, struct buf *b)
{
    size_t off = 0;
    while (off < b->n) {
        struct pollfd p = {.fd = t->fd, .events = POLLOUT};
        CHECK(poll(&p, 1, 10000) == 1);
        ssize_t n = send(t->fd, b->p + off, b->n - off, MSG_NOSIGNAL | MSG_DONTWAIT);
        CHECK(n > 0);
        off += (size_t)n;
    }
    buf_free(b);
}
static void talk_open(struct talk *t, int fd) /* only writes: answers come once the guest runs */
{
    *t = (struct talk){.fd = fd};
    random_bytes(&t->epoch, sizeof t->epoch);
    t->epoch |= 1;
    t->rd = (struct frame_reader){.want_epoch = t->epoch, .want_ack = true};
    struct buf b = {0};
    frame_put_sync(&b, t->epoch, false, false);
    talk_send(t, &b);
}
static void talk_request(struct talk *t, uint8_t op, struct buf *rec)
{
    struct buf body = {0}, b = {0};
    buf_putc(&body, (char)op);
    buf_put(&body, rec ? rec->p : NULL, rec ? rec->n : 0);
    frame_put(&b, t->epoch, FR_REQ, 0, ++t->stream, body.p, body.n);
    buf_free(&body);
    if (rec)
        buf_free(rec);
    talk_send(t, &b);
}
/* Error code of the answer; DATA on the way is collected. */
static int talk_answer(struct talk *t, struct buf *data, int seconds)
{
    struct frame f;
    int64_t end = clock_mono() + seconds * NS_PER_S;
    for (;;) {
        if (!talk_frame(t, &f, false, end))
            return -1;
        if (f.stream != t->stream)
            continue;
        if (f.type == FR_DATA && data)
            buf_put(data, f.p, f.n);
        if (f.type != FR_RES || !f.n)
            continue;
        if (f.p[0]) {
            auto_free char *m = rec_dup((struct rec){f.p + 1, f.n - 1}, T_MESSAGE);
            printf("# agent: %s\n", m ? m : "?");
        }
        return f.p[0];
    }
}
static bool talk_ack(struct talk *t, int seconds)
{
    struct frame f;
    return talk_frame(t, &f, true, clock_mono() + seconds * NS_PER_S);
}
static int talk_configure(struct talk *t, const char *hostname, uint64_t generation, uint64_t flags)
{
    unsigned char rnd[32];
    struct buf r = {0};
    random_bytes(rnd, sizeof rnd);
    rec_put(&r, T_ENTROPY, rnd, sizeof rnd);
    rec_put_u64(&r, T_WALL_NS, (uint64_t)clock_wall());
    rec_put_str(&r, T_HOSTNAME, hostname);
    rec_put_str(&r, T_MACHINE_ID, "00112233445566778899aabbccddeeff");
    rec_put_u64(&r, T_GENERATION, generation);
    rec_put_str(&r, T_SANDBOX, hostname);
    rec_put_str(&r, T_USER, "root");
    rec_put_u64(&r, T_FLAGS, flags);
    talk_request(t, OP_CONFIGURE, &r);
    return talk_answer(t, NULL, 20);
}
static void talk_write(struct talk *t, const char *path, const char *text)
{
    struct buf r = {0}, b = {0};
    rec_put_str(&r, T_PATH, path);
    talk_request(t, OP_WRITE, &r);
    frame_put(&b, t->epoch, FR_DATA, CH_FILE, t->stream, text, strlen(text));
    frame_put(&b, t->epoch, FR_EOF, CH_FILE, t->stream, NULL, 0);
    talk_send(t, &b);
    CHECK_INT(talk_answer(t, NULL, 10), 0);
}
static void talk_read(struct talk *t, const char *path, struct buf *out)
{
    struct buf r = {0};
    rec_put_str(&r, T_PATH, path);
    rec_put_u64(&r, T_CREDIT, 65536);
    talk_request(t, OP_READ, &r);
    CHECK_INT(talk_answer(t, out, 10), 0);
}
static void check_file(struct talk *t, const char *path, const char *want)
{
    auto_buf b = {0};
    talk_read(t, path, &b);
    CHECK_STR(b.p ? b.p : "", want);
}

/* ---- building ---- */

static int prepares, builds,
    prepare_mode; /* 0: well, 1: never answers, 2: says no, 3: the agent changes at first */
static struct vm_variant *variant;
static struct err build_err;
static struct vm_build *building;
static int64_t boot_at, boot_ns;

/* Runs as well, and is another. */
static int agent_with_a_byte_more(void)
{
    size_t n;
    CHECK(lseek(agent_fd, 0, SEEK_SET) == 0);
    auto_free char *p = fd_slurp(agent_fd, 32u << 20, &n);
    int fd = memfd_create("agent", MFD_CLOEXEC);
    CHECK(p && fd >= 0 && fd_write_all(fd, p, n) && fd_write_all(fd, "\n", 1) &&
          !lseek(fd, 0, SEEK_SET));
    return fd;
}

static void on_prepare(void *arg, struct vm_build *b, int fd)
{
    (void)arg;
    prepares++;
    building = b;
    if (prepare_mode == 1)
        return;
    struct err no;
    if (prepare_mode == 3 && prepares == 1) {
        int other = agent_with_a_byte_more();
        CHECK_INT(vm_host_load(host, kernel_fd, other, &no), 0);
        (void)close(other);
    }
    if (prepare_mode == 2) {
        (void)err_set(&no, E_GUEST, "the start command failed");
        vm_build_prepared(b, &no);
        return;
    }
    struct talk t;
    talk_open(&t, fd);
    CHECK(talk_ack(&t, 60));
    boot_ns = clock_mono() - boot_at;
    CHECK_INT(talk_configure(&t, "template", 1, CFG_PRIME), 0);
    check_file(&t, "/etc/note", "base\n");
    talk_write(&t, "/root/warm", "yes");
    talk_request(&t, OP_SYNC, NULL);
    CHECK_INT(talk_answer(&t, NULL, 20), 0);
    for (int i = 0; i < 5; i++) {
        talk_request(&t, OP_PING, NULL);
        CHECK_INT(talk_answer(&t, NULL, 5), 0);
    }
    buf_free(&t.in);
    vm_build_prepared(b, NULL);
}
static void on_built(void *arg, struct vm_variant *v, const struct err *e)
{
    (void)arg;
    builds++;
    variant = v;
    build_err = e ? *e : (struct err){0};
    building = NULL;
}
static int last_percent;
static void on_progress(void *arg, int percent, const char *what)
{
    (void)arg;
    printf("# %5.0f ms %3d%% %s\n", (double)(clock_mono() - boot_at) / 1e6, percent, what);
    last_percent = percent;
}
static const struct vm_build_ops build_ops = {on_progress, on_prepare, on_built};

static void build(void)
{
    struct err e = {0};
    builds = prepares = 0;
    boot_at = clock_mono();
    CHECK(vm_variant_build(host, &spec, &build_ops, NULL, &e));
    CHECK_INT(builds + prepares, 0); /* nothing from inside the call */
    CHECK(until(&builds, 150));
}

static int entries(const char *rel)
{
    char path[256];
    (void)snprintf(path, sizeof path, "%s/%s", home, rel);
    DIR *d = opendir(path);
    int n = 0;
    for (struct dirent *de; d && (de = readdir(d));)
        n += strcmp(de->d_name, ".") && strcmp(de->d_name, "..");
    if (d)
        (void)closedir(d);
    return n;
}

/* Files leave after the answer: nobody need wait for the disk. */
static bool empties(const char *rel)
{
    int64_t end = clock_mono() + 20 * NS_PER_S;
    while (entries(rel) && clock_mono() < end) {
        loop_turn(loop, false);
        (void)usleep(1000);
    }
    return !entries(rel);
}

/* ---- machines ---- */

struct box {
    char id[SP_ID];
    struct vm *vm;
    struct talk t;
    int flag;
    struct err err;
    int64_t start_ns, resume_ns, reply_ns;
};

static void on_vm(void *arg, struct vm *vm, const struct err *e)
{
    struct box *b = arg;
    b->flag++;
    b->vm = vm;
    b->err = e ? *e : (struct err){0};
    if (e)
        printf("# %s: %s\n", b->id, e->msg);
}
static void wait_vm(struct box *b)
{
    CHECK(until(&b->flag, 30));
    b->flag = 0;
    CHECK_INT(b->err.code, E_OK);
}
static void start(struct box *b)
{
    struct vm_limits lim = {
        .limit = {.memory_mib = spec.ram_mib, .cpu_millis = 1000, .pids_max = 256}};
    *b = (struct box){0};
    id_make('i', b->id);
    int64_t t = clock_mono();
    vm_start(host, variant, b->id, &lim, on_vm, b);
    wait_vm(b);
    b->start_ns = clock_mono() - t;
    CHECK_INT(vm_run_state(b->vm), VM_SLOT);
    CHECK(vm_pid(b->vm) > 0);
}
static void restore(struct box *b)
{
    int64_t t = clock_mono();
    talk_open(&b->t, vm_chan(b->vm)); /* waits in the socket until the guest is up */
    vm_restore(b->vm, on_vm, b);
    wait_vm(b);
    b->resume_ns = clock_mono() - t;
    CHECK(talk_ack(&b->t, 20));
    b->reply_ns = clock_mono() - t;
    CHECK_INT(vm_run_state(b->vm), VM_RUNNING);
    CHECK_INT(talk_configure(&b->t, b->id, 2, 0), 0);
}
static void on_reply(void *arg, const struct sp_rep *rep, int *fds, int nfds)
{
    (void)fds, (void)nfds;
    if (rep->rc)
        printf("# spawner: %s\n", rep->err.msg);
    *(int *)arg = rep->rc ? 2 : 1;
}
static void remove_box(struct box *b)
{
    struct sp_req q = {.op = SP_REMOVE};
    struct err e;
    int done = 0;
    memcpy(q.u.id.id, b->id, SP_ID);
    vm_free(b->vm);
    buf_free(&b->t.in);
    CHECK_INT(spawn_call(client, &q, NULL, 0, on_reply, &done, &e), 0);
    CHECK(until(&done, 20));
    CHECK_INT(done, 1);
}

static int got_fds[3];
static void on_attach(void *arg, const struct sp_rep *rep, int *fds, int nfds)
{
    CHECK_INT(rep->rc, 0);
    CHECK_INT(nfds, 3);
    for (int i = 0; i < 3; i++)
        got_fds[i] = take_fd(&fds[i]);
    *(int *)arg = 1;
}
static void adopt(struct box *b)
{
    struct sp_req q = {.op = SP_ATTACH};
    struct err e;
    int done = 0;
    memcpy(q.u.id.id, b->id, SP_ID);
    /* As after a crash: half a command is left in the emulator's parser. */
    CHECK_INT(spawn_call(client, &q, NULL, 0, on_attach, &done, &e), 0);
    CHECK(until(&done, 10));
    static const char half[] = "{\"execute\":\"query-st";
    CHECK(send(got_fds[2], half, sizeof half - 1, 0) == sizeof half - 1);
    vm_free(b->vm);
    vm_adopt(host, variant, b->id, got_fds[0], got_fds[1], got_fds[2], on_vm, b);
    wait_vm(b);
}

static int loads;
static struct err load_err;
static struct vm_variant *loaded;
static void on_load(void *arg, struct vm_variant *v, const struct err *e)
{
    (void)arg;
    loads++;
    loaded = v;
    load_err = e ? *e : (struct err){0};
}
static enum err_code load(void)
{
    loads = 0;
    vm_variant_load(host, &spec, on_load, NULL);
    CHECK_INT(loads, 0);
    CHECK(until(&loads, 30));
    vm_variant_unref(loaded);
    return load_err.code;
}

static int by_value(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return x < y ? -1 : x > y;
}
#define RUNS 9
static void report(const char *what, int64_t v[RUNS])
{
    qsort(v, RUNS, sizeof *v, by_value);
    printf("# %-28s median %.1f ms, max %.1f ms\n", what, (double)v[RUNS / 2] / 1e6,
           (double)v[RUNS - 1] / 1e6);
}

TEST(vm, builds_a_variant_and_runs_clones_of_it)
{
    setup(0);
    CHECK_INT(load(), E_NOT_FOUND);
    build();
    CHECK_INT(build_err.code, E_OK);
    CHECK_INT(last_percent, 100);
    CHECK_INT(prepares, 1);
    CHECK(variant);
    CHECK_INT(entries("templates/" TID "/vm"), 1);
    printf("# boot to agent %.0f ms; memory that is not zero %.1f MB\n", (double)boot_ns / 1e6,
           (double)vm_variant_ram_bytes(variant) / 1e6);

    struct box a, b;
    start(&a);
    start(&b);
    restore(&a);
    restore(&b);
    check_file(&a.t, "/etc/note", "base\n");
    check_file(&a.t, "/root/warm", "yes");
    talk_write(&a.t, "/root/mine", "a");
    talk_write(&b.t, "/root/mine", "b");
    check_file(&a.t, "/root/mine", "a");
    check_file(&b.t, "/root/mine", "b");

    vm_stop(a.vm, on_vm, &a);
    wait_vm(&a);
    CHECK_INT(vm_run_state(a.vm), VM_STOPPED);
    vm_cont(a.vm, on_vm, &a);
    wait_vm(&a);
    talk_request(&a.t, OP_PING, NULL);
    CHECK_INT(talk_answer(&a.t, NULL, 5), 0);

    adopt(&a);
    CHECK_INT(vm_run_state(a.vm), VM_RUNNING);
    buf_free(&a.t.in);
    talk_open(&a.t, vm_chan(a.vm));
    CHECK(talk_ack(&a.t, 5));
    CHECK_INT(talk_configure(&a.t, a.id, 3, 0), 0);
    check_file(&a.t, "/root/mine", "a");

    vm_quit(a.vm, on_vm, &a);
    wait_vm(&a);
    CHECK_INT(vm_run_state(a.vm), VM_LOST);
    vm_cont(a.vm, on_vm, &a); /* refused later, not crashed */
    CHECK(!a.flag);
    CHECK(until(&a.flag, 5) && a.err.code == E_GONE);
    b.flag = 0;
    remove_box(&a);
    remove_box(&b);
    CHECK(empties("boxes"));

    int64_t s[RUNS], r[RUNS], f[RUNS];
    for (int i = 0; i < RUNS; i++) {
        start(&a);
        restore(&a);
        s[i] = a.start_ns, r[i] = a.resume_ns, f[i] = a.reply_ns;
        remove_box(&a);
    }
    report("slot ready", s);
    report("restore to running", r);
    report("restore to first answer", f);

    vm_variant_unref(variant);
    CHECK_INT(load(), E_OK); /* from the files again */
    run("for f in %s/templates/" TID
        "/vm/*/ram; do printf X | dd of=$f bs=1 seek=$((16 << 20)) conv=notrunc 2>/dev/null; done",
        home);
    CHECK_INT(load(), E_CONFLICT);
    run("for f in %s/templates/" TID
        "/vm/*/manifest.json; do sed -i 's/\"vcpus\":1/\"vcpus\":2/' $f; done",
        home);
    CHECK_INT(load(), E_CONFLICT);
    printf("# %s\n", load_err.msg);
    struct vm_spec other = spec;
    char k1[VM_KEY_SIZE], k2[VM_KEY_SIZE];
    other.ram_mib = 512;
    vm_key(host, &spec, k1);
    vm_key(host, &other, k2);
    CHECK(strcmp(k1, k2));
    close_world();
}

TEST(vm, a_hung_boot_is_tried_twice_and_leaves_nothing)
{
    setup(6 * NS_PER_S); /* a kernel gets to say something in that time, on a busy host too */
    run("mkdir -p %s/log", home);
    prepare_mode = 1;
    build();
    CHECK_INT(prepares, 2);
    CHECK_INT(build_err.code, E_TIMEOUT);
    CHECK(!variant);
    int never = 0;
    (void)until(&never, 1);
    CHECK_INT(entries("templates/" TID "/vm"), 0);
    CHECK(empties("boxes"));
    /* the last word of its console, and where the rest is; the second boot was loud */
    printf("# %s\n", build_err.msg);
    CHECK(strstr(build_err.msg, "; its console (log/console.log in HUTCH_HOME) says: ["));
    run("test $(grep -c '^==== .* boot [12] of 2: ' %s/log/console.log) = 2", home);
    run("test $(sed '1,/boot 2 of 2/d' %s/log/console.log | wc -l) -gt 20 && test $(sed '/boot 2 of 2/,$d' %s/log/console.log | wc -l) -lt 15",
        home, home);
    close_world();
}

TEST(vm, a_guest_that_says_no_is_not_tried_again)
{
    setup(0);
    prepare_mode = 2;
    build();
    CHECK_INT(prepares, 1);
    CHECK_INT(build_err.code, E_GUEST);
    close_world();
}

/* A kernel is fetched, or an agent replaced, while a snapshot with the one before is made: who waits gets the new one. */
TEST(vm, a_build_that_is_overtaken_starts_over)
{
    char before[VM_KEY_SIZE], after[VM_KEY_SIZE];
    setup(0);
    prepare_mode = 3;
    vm_key(host, &spec, before);
    build();
    vm_key(host, &spec, after);
    CHECK(strcmp(before, after));
    CHECK_INT(build_err.code, E_OK);
    CHECK_INT(prepares, 2);
    CHECK_INT(entries("templates/" TID "/vm"), 1); /* nothing of the first */
    vm_variant_unref(variant);
    CHECK_INT(load(), E_OK);
    close_world();
}

TEST(vm, a_cancelled_build_leaves_nothing)
{
    setup(0);
    prepare_mode = 1;
    struct err e = {0};
    struct vm_build *b = vm_variant_build(host, &spec, &build_ops, NULL, &e);
    CHECK(b);
    vm_build_cancel(b); /* while its files are made */
    b = vm_variant_build(host, &spec, &build_ops, NULL, &e);
    CHECK(b && until(&prepares, 30));
    vm_build_cancel(b); /* while it boots */
    int never = 0;
    (void)until(&never, 2);
    CHECK_INT(builds, 0);
    CHECK_INT(entries("templates/" TID "/vm"), 0);
    CHECK(empties("boxes"));
    close_world();
}

/* The daemon may be told to stop at any moment: nothing is called back, nothing leaks (the sanitizers look). */
TEST(vm, the_host_may_go_while_things_are_in_flight)
{
    setup(0);
    build();
    CHECK_INT(build_err.code, E_OK);
    vm_variant_unref(variant);
    static const int wait_ms[] = {0, 1, 5, 20, 60, 200, 1000};
    for (size_t i = 0; i < sizeof wait_ms / sizeof *wait_ms; i++) {
        struct box a = {0};
        struct vm_limits lim = {
            .limit = {.memory_mib = spec.ram_mib, .cpu_millis = 1000, .pids_max = 256}};
        struct vm_spec other = spec;
        struct err e = {0};
        disconnect_world();
        connect_world(0);
        CHECK_INT(load(), E_OK);
        loads = 0;
        vm_variant_load(host, &spec, on_load, NULL);
        CHECK(until(&loads, 20));
        id_make('i', a.id);
        vm_start(host, loaded, a.id, &lim, on_vm, &a);
        vm_variant_unref(loaded);
        other.disk_mib += 64;
        prepare_mode = 1;
        builds = 0;
        CHECK(vm_variant_build(host, &other, &build_ops, NULL, &e));
        int64_t end = clock_mono() + wait_ms[i] * NS_PER_MS;
        while (clock_mono() < end)
            loop_turn(loop, false);
        if (a.flag)
            vm_free(a.vm);
        prepare_mode = 0;
    }
    close_world();
}

TEST(vm, refuses_what_cannot_be)
{
    setup(0);
    struct err e = {0};
    struct vm_spec s = spec;
    s.ram_mib = 1;
    CHECK(!vm_variant_build(host, &s, &build_ops, NULL, &e));
    CHECK_INT(e.code, E_INVALID);
    s = spec;
    (void)snprintf(s.template_id, sizeof s.template_id, "../../etc");
    CHECK(!vm_variant_build(host, &s, &build_ops, NULL, &e));
    spec.disk_mib = 16; /* smaller than the image */
    build();
    CHECK_INT(build_err.code, E_INVALID);
    printf("# %s\n", build_err.msg);
    close_world();
}
TEST_MAIN
