/* The warden of an isolate and its fork server, with this machine's Python as
 * the interpreter. What the filter refuses is tested elsewhere (unit/jail,
 * security); here it allows everything, so that only the warden's own limits end a call. */
#include "driver.h"
#include "guest/isolate.h"
#include "wire/isolate.h"
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <limits.h>

#define PYTHON "/usr/bin/python3"
static struct buf library, driver; /* read before the namespaces hide them */
static const char *before = "";   /* what runs first in the interpreter, as a module of the template would */

static void put(const char *name, const void *p, size_t n)
{
    int fd = open(name, O_WRONLY | O_CREAT | O_TRUNC, 0444);
    CHECK(fd >= 0 && fd_write_all(fd, p, n));
    close(fd);
}
static struct buf slurp(const char *path)
{
    struct buf b = {0};
    b.p = fd_slurp_at(AT_FDCWD, path, 1 << 20, &b.n);
    return b;
}
static void furnish(void)
{
    static const struct sock_filter all[] = {{BPF_RET | BPF_K, 0, 0, SECCOMP_RET_ALLOW}};
    CHECK(!mount("tmpfs", ZY_DIR, "tmpfs", 0, "mode=755"));
    put(ZY_LIBRARY, library.p, library.n);
    put(ZY_DIR "/driver", driver.p, driver.n);
    buf_free(&library), buf_free(&driver);
    put(ZY_FILTER, all, sizeof all);
    CHECK(!prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0));
}

static void begin(struct host *h, const char *language)
{
    char lib_path[PATH_MAX], share_path[PATH_MAX];
    ssize_t n = readlink("/proc/self/exe", lib_path, sizeof lib_path - 64);
    CHECK(n > 0 && realpath(__FILE__, share_path));
    lib_path[n] = 0;
    *strrchr(lib_path, '/') = 0;
    strcat(lib_path, "/../../hutch-zygote.so");
    *strrchr(share_path, '/') = 0;
    strcat(share_path, "/../../../share/isolate/driver.py");
    library = slurp(lib_path);
    struct buf plain = slurp(share_path);
    buf_puts(&driver, before);
    buf_put(&driver, plain.p, plain.n);
    CHECK(plain.n > 0);
    buf_free(&plain);
    if (!library.p)
        SKIP("hutch-zygote.so is not built");
    if (access(PYTHON, X_OK))
        SKIP("no " PYTHON);
    driver_isolate = language, driver_furnish = furnish;
    host_start_raw(h);
    buf_free(&library), buf_free(&driver);
    host_sync(h, 77, false);
}

struct lim { uint64_t wall, cpu, mem, out, result, credit; };
static const struct lim usual = {10000, 10000, 256 << 20, 65536, 65536, 3 * 65536};
static struct buf request(const struct lim *l, const char *p, size_t total, size_t first)
{
    struct buf b = {0};
    rec_put_u64(&b, TI_TOTAL, total);
    rec_put(&b, TI_BYTES, p, first);
    rec_put_u64(&b, TI_WALL_MS, l->wall);
    rec_put_u64(&b, TI_CPU_MS, l->cpu);
    rec_put_u64(&b, TI_MEM_BYTES, l->mem);
    rec_put_u64(&b, TI_OUT_BYTES, l->out);
    rec_put_u64(&b, TI_RESULT_BYTES, l->result);
    rec_put_u64(&b, T_CREDIT, l->credit);
    return b;
}
static uint32_t start(struct host *h, const struct lim *l, const char *code)
{
    char text[2048];
    int n = snprintf(text, sizeof text, "{\"code\":\"%s\",\"input\":null,\"function\":null}", code);
    struct buf b = request(l, text, (size_t)n, (size_t)n);
    return host_req(h, OP_ISO_CALL, &b);
}
static uint64_t fact(const struct result *r, uint8_t tag) { return rec_u64_or((struct rec){(unsigned char *)r->res.p, r->res.n}, tag, 99999); }
static struct result run(struct host *h, const struct lim *l, const char *code)
{
    struct result r = {.no_credit = 1};
    host_wait(h, start(h, l, code), &r);
    return r;
}
static bool is(const struct buf *b, const char *z) { return b->n == strlen(z) && !memcmp(b->p ? b->p : "", z, b->n); }
static void end(struct host *h)
{
    close(h->fd);
    buf_free(&h->in);
}

TEST(isolate, value_streams_and_status)
{
    struct host h;
    begin(&h, "python");
    for (int i = 0; i < 3; i++) {
        struct result r = run(&h, &usual, "import sys; print('out'); print('err', file=sys.stderr); x = 6\\nx*7");
        CHECK_INT(r.code, 0);
        CHECK(is(&r.out, "out\n") && is(&r.err, "err\n") && is(&r.file, "LV42"));
        CHECK_INT(fact(&r, TI_STATUS), 0);
        CHECK_INT(fact(&r, TI_CUT), ISO_UNCUT);
        CHECK(fact(&r, TI_CPU_NS) > 0 && fact(&r, TI_WALL_NS) > 0);
        result_free(&r);
    }
    struct result r = run(&h, &usual, "import os; os._exit(7)");
    CHECK_INT(fact(&r, TI_STATUS), 7 << 8);
    CHECK(is(&r.file, "L"));
    result_free(&r);
    r = run(&h, &usual, "import os; os.kill(os.getpid(), 11)");
    CHECK_INT(fact(&r, TI_STATUS) & 0x7f, SIGSEGV);
    result_free(&r);
    end(&h);
}

/* Each is a process of its own: nothing of one is seen by the next. */
TEST(isolate, calls_share_nothing)
{
    struct host h;
    begin(&h, "python");
    struct result r = run(&h, &usual, "import sys, random; sys.flags_seen = 1; random.random()");
    struct result s = run(&h, &usual, "import sys, random; assert not hasattr(sys, 'flags_seen'); random.random()");
    CHECK(r.file.n > 3 && s.file.n > 3 && s.file.p[1] == 'V');
    CHECK(!is(&r.file, s.file.p));
    result_free(&r), result_free(&s);
    r = run(&h, &usual, "import os; sorted(map(int, os.listdir('/proc/self/fd')))[:4]");
    CHECK(is(&r.file, "LV[0, 1, 2, 3]"));
    result_free(&r);
    r = run(&h, &usual, "import os; [n for n in map(int, os.listdir('/proc/self/fd')) if n > 4]"); /* 4 is the listing itself */
    CHECK(is(&r.file, "LV[]"));
    result_free(&r);
    r = run(&h, &usual, "import os; os.write(0, b'x')"); /* the payload is sealed */
    CHECK(r.file.n > 2 && r.file.p[1] == 'E');
    result_free(&r);
    end(&h);
}

TEST(isolate, limits)
{
    struct host h;
    begin(&h, "python");
    struct lim l = usual;
    l.wall = 150;
    struct result r = run(&h, &l, "print('begun')\\nimport time; time.sleep(60)");
    CHECK_INT(fact(&r, TI_CUT), ISO_CUT_WALL);
    CHECK_INT(fact(&r, TI_STATUS) & 0x7f, SIGKILL);
    CHECK(is(&r.out, "begun\n"));
    result_free(&r);
    l = usual, l.cpu = 100;
    r = run(&h, &l, "while True: pass");
    CHECK_INT(fact(&r, TI_CUT), ISO_CUT_CPU);
    CHECK(fact(&r, TI_CPU_NS) >= 100 * NS_PER_MS);
    result_free(&r);
    l = usual, l.out = 1000;
    r = run(&h, &l, "while True: print('x' * 99)");
    CHECK_INT(fact(&r, TI_CUT), ISO_CUT_OUTPUT);
    CHECK_INT(r.out.n, 1000);
    result_free(&r);
    l = usual, l.result = 1000;
    r = run(&h, &l, "'x' * 5000");
    CHECK_INT(fact(&r, TI_CUT), ISO_CUT_RESULT);
    CHECK_INT(r.file.n, 1000);
    result_free(&r);
    l = usual, l.mem = 32 << 20;
    r = run(&h, &l, "x = []\\nwhile True: x.append(bytearray(1 << 20))");
    CHECK(r.file.n > 2 && memmem(r.file.p, r.file.n, "\"memory\"", 8));
    CHECK(fact(&r, TI_RSS_BYTES) > 20u << 20 && fact(&r, TI_RSS_BYTES) < 64u << 20);
    CHECK(fact(&r, TI_OWN_BYTES) > 4u << 20 && fact(&r, TI_OWN_BYTES) < 512u << 20); /* what it may take beside that */
    result_free(&r);
    r = run(&h, &usual, "1");
    CHECK(is(&r.file, "LV1"));
    result_free(&r);
    end(&h);
}

TEST(isolate, many_at_once_and_a_cancel)
{
    struct host h;
    begin(&h, "python");
    uint32_t id[8];
    for (int i = 0; i < 8; i++)
        id[i] = start(&h, &usual, i == 3 ? "import time; time.sleep(60)" : "sum(range(1000))");
    struct result r[8] = {0};
    struct frame f;
    int over = 0;
    for (int i = 0; i < 8; i++)
        r[i].no_credit = 1;
    host_send(&h, FR_CANCEL, 0, id[3], NULL, 0);
    while (over < 8) {
        CHECK(host_frame(&h, &f, 30000));
        for (int i = 0; i < 8; i++)
            if (f.stream == id[i]) {
                take_frame(&h, &r[i], &f);
                over += f.type == FR_RES;
            }
    }
    for (int i = 0; i < 8; i++) {
        CHECK_INT(r[i].code, i == 3 ? E_CANCELED : 0);
        CHECK(i == 3 || is(&r[i].file, "LV499500"));
        result_free(&r[i]);
    }
    end(&h);
}

TEST(isolate, payload_in_pieces)
{
    struct host h;
    begin(&h, "python");
    struct buf text = {0};
    buf_puts(&text, "{\"code\":\"len(input)\",\"function\":null,\"input\":\"");
    for (int i = 0; i < 300000; i++)
        buf_putc(&text, 'x');
    buf_puts(&text, "\"}");
    struct buf b = request(&usual, text.p, text.n, 1000);
    uint32_t id = host_req(&h, OP_ISO_CALL, &b);
    struct result r = {.no_credit = 1};
    for (size_t at = 1000, allowed = CREDIT_INITIAL; at < text.n;) {
        size_t n = text.n - at < 30000 ? text.n - at : 30000;
        while (allowed + r.granted < at - 1000 + n)
            CHECK(host_step(&h, id, &r, 10000));
        host_send(&h, FR_DATA, CH_STDIN, id, text.p + at, n);
        at += n;
    }
    host_wait(&h, id, &r);
    CHECK(is(&r.file, "LV300000"));
    result_free(&r);
    buf_free(&text);
    end(&h);
}

TEST(isolate, refuses_what_it_does_not_know)
{
    struct host h;
    begin(&h, "python");
    struct result r = {0};
    host_call(&h, OP_START, NULL, &r);
    CHECK_INT(r.code, E_UNSUPPORTED);
    result_free(&r);
    struct lim l = usual;
    l.wall = 0;
    r = run(&h, &l, "1");
    CHECK_INT(r.code, E_INVALID);
    result_free(&r);
    l = usual, l.credit = 10;
    r = run(&h, &l, "1");
    CHECK_INT(r.code, E_INVALID);
    result_free(&r);
    r = run(&h, &usual, "5");
    CHECK(is(&r.file, "LV5"));
    result_free(&r);
    host_call(&h, OP_PING, NULL, &r);
    CHECK_INT(r.code, 0);
    result_free(&r);
    end(&h);
}

TEST(isolate, an_interpreter_that_does_not_start)
{
    struct host h;
    struct result r;
    begin(&h, "js"); /* node, if there is one, is given a Python program to load; if there is none, that is what it says */
    r = run(&h, &usual, "1");
    CHECK_INT(r.code, E_UNSUPPORTED);
    CHECK(strstr(r.msg, "js did not start") || strstr(r.msg, "has no js"));
    result_free(&r);
    r = run(&h, &usual, "1"); /* and again, for the next one */
    CHECK_INT(r.code, E_UNSUPPORTED);
    result_free(&r);
    end(&h);
}

/* Modules try to (pandas asks for the name of the processor). It must neither work nor be taken for the driver's fork. */
TEST(isolate, what_is_loaded_starts_no_program)
{
    struct host h;
    before = "import os, subprocess\n"
             "for start in lambda: subprocess.run(['uname']), os.fork, lambda: os.posix_spawn('/bin/true', ['true'], {}):\n"
             "    try: start()\n"
             "    except OSError: pass\n"
             "    else: raise SystemExit('it started')\n";
    begin(&h, "python");
    for (int i = 0; i < 3; i++) {
        struct result r = run(&h, &usual, "40 + 2");
        CHECK_INT(r.code, 0);
        CHECK(is(&r.file, "LV42") && !r.out.n);
        result_free(&r);
    }
    end(&h);
}

/* The interpreter of all calls dies: those that run end with it, the next one gets a new one. */
TEST(isolate, the_interpreter_dies)
{
    struct host h;
    begin(&h, "python");
    struct result r = run(&h, &usual, "1");
    result_free(&r);
    r = run(&h, &usual, "import os; os.kill(2, 9); import time; time.sleep(60)"); /* only because the filter is off here */
    CHECK_INT(r.code, E_GUEST);
    result_free(&r);
    r = run(&h, &usual, "2");
    CHECK(is(&r.file, "LV2"));
    result_free(&r);
    end(&h);
}

TEST_MAIN
