/* The envd half of the E2B dialect over a fake core: formats, then exchanges. */
#include "api/e2b/envd/envd.h"
#include "api/e2b/envd/filesystem.h"
#include "api/e2b/envd/files_gunzip.h"
#include "api/e2b/envd/process.h"
#include "api/e2b/envd/rpc.h"
#include "api/e2b/signature.h"
#include "api/gzip.h"
#include "fake.h"
#include <zlib.h>

#define TOKEN "Kq3hutch0demo0token0"

/* ---- signatures ---- */
static const char *sign(const char *path, const char *op, const char *user, const char *exp)
{
    static char out[E2B_SIGNATURE_MAX];
    e2b_signature(str_of(path), op, str_of(user), TOKEN, exp ? str_of(exp) : (struct str){0}, out);
    return out;
}
TEST(signature, check_vectors)
{
    CHECK_STR(sign("notes/a b.txt", "read", "", NULL), "v1_KB/TFPCoJT/tXo6QU3BI2teJtyHOiHdHR0MHRJERiq4");
    CHECK_STR(sign("/root/x.bin", "write", "root", "1900000000"), "v1_BpN8yP6QyOty+tsS+9kajh5dAO48jy4RgJfXd+/gwCc");
}
TEST(signature, everything_in_it_counts)
{
    struct signed_url u = {.path = S("/root/x.bin"), .user = S("root"), .op = "write", .expiration = S("1900000000"),
                           .signature = S("v1_BpN8yP6QyOty+tsS+9kajh5dAO48jy4RgJfXd+/gwCc")};
    CHECK(e2b_signature_matches(&u, TOKEN));
    CHECK(!e2b_signature_matches(&u, "another"));
    u.op = "read";
    CHECK(!e2b_signature_matches(&u, TOKEN));
    u.op = "write", u.expiration = S("1900000001");
    CHECK(!e2b_signature_matches(&u, TOKEN));
    u.expiration = S("1900000000"), u.signature.n--;
    CHECK(!e2b_signature_matches(&u, TOKEN));
    CHECK(!e2b_signature_expired(&u, 1900000000));
    CHECK(e2b_signature_expired(&u, 1900000001));
    u.expiration = S("soon");
    CHECK(e2b_signature_expired(&u, 0));
    u.expiration = (struct str){0};
    CHECK(!e2b_signature_expired(&u, INT64_MAX));
}

/* ---- envelopes and headers ---- */
TEST(envelope, writes_flags_and_length)
{
    auto_buf b = {0};
    rpc_envelope(&b, 0, "{\"event\":{\"start\":{\"pid\":77}}}", 30);
    CHECK(b.n == 35 && !memcmp(b.p, "\0\0\0\0\x1e{\"event\"", 13));
    b.n = 0;
    rpc_envelope(&b, 2, "{}", 2);
    CHECK(b.n == 7 && !memcmp(b.p, "\2\0\0\0\2{}", 7));
}
TEST(envelope, opens_exactly_one_message)
{
    struct str m;
    struct err e;
    CHECK(!rpc_open_envelope("\0\0\0\0\2{}", 7, &m, &e) && m.n == 2);
    CHECK(!rpc_open_envelope("\0\0\0\0\0", 5, &m, &e) && !m.n);
    CHECK(rpc_open_envelope("\0\0\0\0\2{}x", 8, &m, &e));
    CHECK(rpc_open_envelope("\0\0\0\0\3{}", 7, &m, &e));
    CHECK(rpc_open_envelope("\1\0\0\0\2{}", 7, &m, &e));
    CHECK(rpc_open_envelope("\0\xff\xff\xff\xff{}", 7, &m, &e));
    CHECK(rpc_open_envelope("\0\0\0", 3, &m, &e));
}
TEST(basic, user_of_the_header)
{
    char u[65];
    CHECK(rpc_basic_user(S("Basic cm9vdDo="), u));
    CHECK_STR(u, "root");
    CHECK(rpc_basic_user(S("basic dXNlcjpzZWNyZXQ="), u));
    CHECK_STR(u, "user");
    CHECK(rpc_basic_user(S("Basic Og=="), u));
    CHECK_STR(u, "");
    CHECK(!rpc_basic_user(S("Basic cm9vdA=="), u)); /* no colon */
    CHECK(!rpc_basic_user(S("Basic !"), u));
    CHECK(!rpc_basic_user(S("Bearer x"), u));
}
TEST(codes, of_our_errors)
{
    struct err e;
    err_set(&e, E_NOT_FOUND, "user 'x' does not exist");
    CHECK_STR(rpc_code_name(rpc_code_of(&e)), "unauthenticated");
    err_set(&e, E_NOT_FOUND, "path '/x' does not exist");
    CHECK_STR(rpc_code_name(rpc_code_of(&e)), "not_found");
    err_set(&e, E_INVALID, "path '/x' has too many symbolic links");
    CHECK_STR(rpc_code_name(rpc_code_of(&e)), "failed_precondition");
    err_set(&e, E_QUOTA, "no space left on device");
    CHECK_INT(rpc_code_http(rpc_code_of(&e)), 429);
    for (int c = E_OK; c < E_CODE_MAX; c++) {
        err_set(&e, (enum err_code)c, "x");
        CHECK(rpc_code_http(rpc_code_of(&e)) >= 400 && rpc_code_name(rpc_code_of(&e)));
    }
}

/* ---- entries ---- */
TEST(entry, permissions)
{
    char p[11];
    fs_permissions('f', 0644, p);
    CHECK_STR(p, "-rw-r--r--");
    fs_permissions('d', 01777, p);
    CHECK_STR(p, "drwxrwxrwx");
    fs_permissions('l', 0777, p);
    CHECK_STR(p, "Lrwxrwxrwx");
    fs_permissions('o', 0, p);
    CHECK_STR(p, "----------");
}
static const char *entry(const struct file_entry *en)
{
    static struct buf b;
    struct jw w;
    b.n = 0;
    jw_init(&w, &b);
    put_fs_entry(&w, en);
    return b.p;
}
TEST(entry, a_file)
{
    const char *const xattr[] = {"user.e2b.author=me", "user.other=x", "user.e2b.=y", NULL};
    struct file_entry en = {.name = "a.txt", .path = "/home/user/a.txt", .owner = "user", .group = "", .type = 'f', .size = 13, .mode = 0644, .gid = 1234,
                            .mtime_ns = 1785578400123000000, .xattr = xattr};
    CHECK_STR(entry(&en), "{\"name\":\"a.txt\",\"type\":\"FILE_TYPE_FILE\",\"path\":\"/home/user/a.txt\",\"size\":\"13\",\"mode\":420,"
                          "\"permissions\":\"-rw-r--r--\",\"owner\":\"user\",\"group\":\"1234\",\"modifiedTime\":\"2026-08-01T10:00:00.123000000Z\","
                          "\"metadata\":{\"author\":\"me\"}}");
}
TEST(entry, links_show_their_target)
{
    struct file_entry en = {.name = "l", .path = "/l", .owner = "u", .group = "g", .type = 'l', .size = 1, .mode = 0777, .target = "/home/user/t", .target_type = 'd', .target_mode = 0750};
    const char *j = entry(&en);
    CHECK(strstr(j, "\"type\":\"FILE_TYPE_DIRECTORY\"") && strstr(j, "\"mode\":488,\"permissions\":\"Lrwxrwxrwx\"") && strstr(j, "\"size\":\"1\""));
    CHECK(strstr(j, "\"symlinkTarget\":\"/home/user/t\"") && !strstr(j, "metadata"));
    en.target_type = 0, en.target_mode = 0, en.target = "nowhere";
    j = entry(&en);
    CHECK(strstr(j, "\"type\":\"FILE_TYPE_UNSPECIFIED\"") && strstr(j, "\"symlinkTarget\":\"/l\""));
}
TEST(entry, a_directory_is_never_empty)
{
    struct file_entry en = {.name = "d", .path = "/d", .owner = "u", .group = "g", .type = 'd', .mode = 0755};
    CHECK(strstr(entry(&en), "\"size\":\"4096\""));
    CHECK(!strstr(entry(&en), "symlinkTarget"));
}

/* ---- ends ---- */
static const char *end(enum exit_kind kind, int code)
{
    static struct buf b;
    struct jw w;
    b.n = 0;
    jw_init(&w, &b);
    put_process_end(&w, &(struct exec_exit){.kind = kind, .code = code});
    return b.p;
}
TEST(end, forms)
{
    CHECK_STR(end(EXIT_CODE, 0), "{\"exited\":true,\"status\":\"exit status 0\"}");
    CHECK_STR(end(EXIT_CODE, 3), "{\"exitCode\":3,\"exited\":true,\"status\":\"exit status 3\",\"error\":\"exit status 3\"}");
    CHECK_STR(end(EXIT_SIGNAL, 9), "{\"exitCode\":-1,\"status\":\"signal: killed\",\"error\":\"signal: killed\"}");
    CHECK_STR(end(EXIT_SIGNAL, 15), "{\"exitCode\":-1,\"status\":\"signal: terminated\",\"error\":\"signal: terminated\"}");
    CHECK_STR(end(EXIT_OOM, 9), "{\"exitCode\":-1,\"status\":\"signal: killed\",\"error\":\"signal: killed\"}");
    CHECK(strstr(end(EXIT_SIGNAL, 40), "signal: signal 40"));
}

/* ---- names and metadata of uploads ---- */
TEST(part, names_are_paths)
{
    auto_buf b = {0};
    e2b_part_path(S("/x/a b.txt"), &b);
    CHECK_STR(b.p, "/x/a b.txt");
    b.n = 0;
    e2b_part_path(S("d/%22q%22 100%25.txt"), &b);
    CHECK_STR(b.p, "d/\"q\" 100%25.txt");
    b.n = 0;
    e2b_part_path(S("%2"), &b);
    CHECK_STR(b.p, "%2");
}
static char **meta(struct http_field *f, unsigned n, struct err *e)
{
    struct http_head h = {.nfields = n, .fields = f};
    return e2b_files_metadata(&h, e);
}
TEST(metadata, headers_become_attributes)
{
    struct err e;
    struct http_field f[] = {{S("X-Metadata-Author"), S("me")}, {S("Host"), S("x")}, {S("x-metadata-KEY"), S("v=1")}, {S("x-metadata-author"), S("second")}};
    char **m = meta(f, 4, &e);
    CHECK_STR(m[0], "user.e2b.author=me");
    CHECK_STR(m[1], "user.e2b.key=v=1");
    CHECK(!m[2]);
    env_free(m);
    m = meta(f + 1, 1, &e);
    CHECK(m && !m[0]);
    env_free(m);
}
TEST(metadata, limits)
{
    struct err e;
    char big[5000];
    memset(big, 'k', sizeof big);
    memcpy(big, "X-Metadata-", 11);
    struct http_field f[] = {{{big, 11 + 246}, S("v")}};
    char **m = meta(f, 1, &e);
    CHECK(m);
    env_free(m);
    f[0].name.n++;
    CHECK(!meta(f, 1, &e));
    f[0].name.n = 12, f[0].value = (struct str){big, 4096 - 9 - 1};
    m = meta(f, 1, &e);
    CHECK(m);
    env_free(m);
    f[0].value.n++;
    CHECK(!meta(f, 1, &e));
    f[0].value = S("gr\xc3\xbc");
    CHECK(!meta(f, 1, &e));
}

/* ---- gunzip ---- */
static size_t gzip(const char *p, size_t n, char *out, size_t cap)
{
    z_stream z = {0};
    CHECK(deflateInit2(&z, 9, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY) == Z_OK);
    z.next_in = (Bytef *)(uintptr_t)p, z.avail_in = (uInt)n, z.next_out = (Bytef *)out, z.avail_out = (uInt)cap;
    CHECK(deflate(&z, Z_FINISH) == Z_STREAM_END);
    deflateEnd(&z);
    return cap - z.avail_out;
}
TEST(gunzip, any_split_and_several_members)
{
    static char text[300000], packed[10000];
    memset(text, 'a', sizeof text);
    size_t n = gzip(text, sizeof text, packed, sizeof packed);
    n += gzip("tail", 4, packed + n, sizeof packed - n);
    for (size_t step = 1; step < 64; step += 7) {
        struct gunzip *g = gunzip_new();
        struct err e;
        size_t total = 0;
        char block[4096], last[4] = "";
        for (size_t at = 0; at < n; at += step) {
            const char *p = packed + at;
            size_t left = n - at < step ? n - at : step;
            for (long k = 1; left || k == (long)sizeof block;) {
                k = gunzip_step(g, &p, &left, block, sizeof block, &e);
                CHECK(k >= 0);
                total += (size_t)k;
                for (long i = 0; i < k; i++)
                    memmove(last, last + 1, 3), last[3] = block[i];
            }
        }
        CHECK(gunzip_whole(g));
        CHECK_INT(total, sizeof text + 4);
        CHECK(!memcmp(last, "tail", 4));
        gunzip_free(g);
    }
}
TEST(gzip, comes_back_whatever_the_pieces)
{
    auto_buf text = {0};
    for (int i = 0; i < 20000; i++)
        buf_printf(&text, "%d ", i * 7919);
    for (size_t step = 1000; step < 2 * text.n; step *= 9) {
        auto_buf packed = {0}, back = {0};
        struct gzip *z = gzip_new();
        for (size_t at = 0; at < text.n; at += step)
            gzip_push(z, text.p + at, text.n - at < step ? text.n - at : step, false, &packed);
        gzip_push(z, NULL, 0, true, &packed);
        gzip_free(z);
        CHECK(packed.n < text.n / 2);
        struct gunzip *g = gunzip_new();
        const char *p = packed.p;
        size_t left = packed.n;
        char block[4096];
        struct err e;
        for (long k = 1; k > 0;) {
            k = gunzip_step(g, &p, &left, block, sizeof block, &e);
            buf_put(&back, block, k > 0 ? (size_t)k : 0);
        }
        CHECK(gunzip_whole(g));
        CHECK(back.n == text.n && !memcmp(back.p, text.p, text.n));
        gunzip_free(g);
    }
}
TEST(gunzip, refuses_what_is_none)
{
    struct gunzip *g = gunzip_new();
    struct err e;
    char block[64];
    const char *p = "plain text";
    size_t left = 10;
    CHECK_INT(gunzip_step(g, &p, &left, block, sizeof block, &e), -1);
    CHECK_INT(gunzip_step(g, &p, &left, block, sizeof block, &e), -1);
    CHECK(!gunzip_whole(g));
    gunzip_free(g);
}

/* ---- exchanges ---- */
static void ask(struct fx *x, const char *method, const char *target, const char *headers, const void *body, size_t n)
{
    auto_buf b = {0};
    fx_open(x);
    buf_printf(&b, "%s %s HTTP/1.1\r\nHost: localhost\r\nE2b-Sandbox-Id: " ID "\r\nE2b-Sandbox-Port: 49983\r\n%s", method, target, headers);
    if (body)
        buf_printf(&b, "Content-Length: %zu\r\n", n);
    buf_puts(&b, "\r\n");
    if (body)
        buf_put(&b, body, n);
    fx_send(x, b.p, b.n);
}
#define AUTH "X-Access-Token: " TOKEN "\r\n"
static void rpc(struct fx *x, const char *target, const char *headers, const char *json)
{
    auto_buf h = {0};
    buf_printf(&h, AUTH "Content-Type: application/json\r\n%s", headers);
    ask(x, "POST", target, h.p, json, strlen(json));
}
static void stream(struct fx *x, const char *target, const char *headers, const char *json)
{
    auto_buf h = {0}, b = {0};
    buf_printf(&h, AUTH "Content-Type: application/connect+json\r\n%s", headers);
    rpc_envelope(&b, 0, json, strlen(json));
    ask(x, "POST", target, h.p, b.p, b.n);
}
static struct fx *envd(void)
{
    struct fx *x = fx_new();
    snprintf(x->core.sb.token, sizeof x->core.sb.token, "%s", TOKEN);
    x->core.sb.core = &x->core;
    return x;
}
#define START "/process.Process/Start"
#define TRUE_CMD "{\"process\":{\"cmd\":\"/bin/bash\",\"args\":[\"-l\",\"-c\",\"true\"]},\"stdin\":false}"

TEST(door, token_health_and_the_dead)
{
    struct fx *x = envd();
    ask(x, "GET", "/health", "", NULL, 0);
    fx_until(x, "HTTP/1.1 204");
    ask(x, "GET", "/envs", "", NULL, 0);
    fx_until(x, "{\"code\":401,\"message\":\"unauthorized access, please provide a valid access token or method signing if supported\"}");
    ask(x, "GET", "/envs", "X-Access-Token: Kq3hutch0demo0token1\r\n", NULL, 0);
    fx_until(x, "\"code\":401");
    ask(x, "GET", "/envs", AUTH, NULL, 0);
    fx_until(x, "HTTP/1.1 200");
    ask(x, "POST", "/init", AUTH, "{}", 2);
    fx_until(x, "HTTP/1.1 404");
    x->core.sb.state = SB_STOPPING;
    ask(x, "GET", "/health", "", NULL, 0);
    fx_until(x, "{\"sandboxId\":\"" ID "\",\"message\":\"The sandbox was not found\",\"code\":502}");
    rpc(x, "/process.Process/List", "", "{}");
    fx_until(x, "HTTP/1.1 502");
    fx_free(x);
}
TEST(door, signatures_on_files)
{
    struct fx *x = envd();
    ask(x, "GET", "/files?path=a", "", NULL, 0);
    fx_until(x, "{\"code\":401,\"message\":\"missing signature query parameter\"}");
    ask(x, "GET", "/files?path=a&signature=v1_x", "", NULL, 0);
    fx_until(x, "{\"code\":401,\"message\":\"invalid signature\"}");
    ask(x, "GET", "/files?path=notes%2Fa+b.txt&signature=v1_KB%2FTFPCoJT%2FtXo6QU3BI2teJtyHOiHdHR0MHRJERiq4", "", NULL, 0);
    CHECK_STR(F.path.p, "notes/a b.txt");
    F.rd->ops.opened(F.rd->arg, &fake_entry);
    F.rd->ops.data(F.rd->arg, (const unsigned char *)"hello", 5);
    fx_until(x, "\r\n\r\nhello");
    fx_open(x); /* no header at all: found by its signature */
    fx_sendz(x, "GET /files?path=notes/a%20b.txt&signature=v1_KB%2FTFPCoJT%2FtXo6QU3BI2teJtyHOiHdHR0MHRJERiq4 HTTP/1.1\r\nHost: localhost\r\n\r\n");
    fake_read_done(&(struct err){.code = E_NOT_FOUND, .msg = "path '/home/user/notes/a b.txt' does not exist"});
    fx_until(x, "{\"code\":404,\"message\":\"path '/home/user/notes/a b.txt' does not exist\"}");
    char sig[E2B_SIGNATURE_MAX], url[200];
    e2b_signature(S("a"), "read", S(""), TOKEN, S("1000"), sig);
    auto_buf enc = {0};
    for (char *c = sig; *c; c++)
        *c == '+' ? buf_puts(&enc, "%2B") : buf_putc(&enc, *c);
    snprintf(url, sizeof url, "/files?path=a&signature=%s&signature_expiration=1000", enc.p);
    ask(x, "GET", url, "", NULL, 0);
    fx_until(x, "{\"code\":401,\"message\":\"signature is already expired\"}");
    fx_free(x);
}
TEST(start, events_and_end)
{
    struct fx *x = envd();
    stream(x, START, "Connect-Timeout-Ms: 60000\r\nAuthorization: Basic cm9vdDo=\r\n",
           "{\"process\":{\"cmd\":\"/bin/bash\",\"args\":[\"-l\",\"-c\",\"true\"],\"envs\":{\"A\":\"1\"},\"cwd\":\"/tmp\"},\"tag\":\"t\",\"stdin\":false}");
    CHECK_STR(F.argv.p, "/bin/bash|-l|-c|true|");
    CHECK_STR(F.env.p, "A=1|");
    CHECK_STR(F.cwd.p, "/tmp");
    CHECK_STR(F.tag.p, "t");
    CHECK_STR(F.user.p, "root");
    CHECK_INT(F.timeout_ms, 60000);
    CHECK(!F.stdin_pipe && !F.cols);
    F.x->ops.started(F.x->arg, 77, 0);
    fx_until(x, "{\"event\":{\"start\":{\"pid\":77}}}");
    HAS(x, "application/connect+json");
    F.x->ops.output(F.x->arg, CH_STDOUT, (const unsigned char *)"hi\n", 3);
    fx_until(x, "{\"event\":{\"data\":{\"stdout\":\"aGkK\"}}}");
    F.x->ops.output(F.x->arg, CH_STDERR, (const unsigned char *)"hi\n", 3);
    fx_until(x, "{\"event\":{\"data\":{\"stderr\":\"aGkK\"}}}");
    CHECK_INT(F.consumed, 6);
    F.x->ops.exited(F.x->arg, &(struct exec_exit){.kind = EXIT_CODE, .code = 3}, 6);
    fake_done(NULL);
    fx_until(x, "{\"event\":{\"end\":{\"exitCode\":3,\"exited\":true,\"status\":\"exit status 3\",\"error\":\"exit status 3\"}}}");
    fx_until(x, "0\r\n\r\n");
    CHECK(memmem(x->in.p, x->in.n, "\2\0\0\0\2{}", 7));
    fx_free(x);
}
TEST(start, terminals)
{
    struct fx *x = envd();
    stream(x, START, "", "{\"process\":{\"cmd\":\"/bin/bash\"},\"pty\":{\"size\":{\"cols\":100,\"rows\":30}}}");
    CHECK(F.cols == 100 && F.rows == 30 && F.stdin_pipe);
    F.x->ops.started(F.x->arg, 5, 0);
    F.x->ops.output(F.x->arg, CH_PTY, (const unsigned char *)"$ ", 2);
    fx_until(x, "{\"event\":{\"data\":{\"pty\":\"JCA=\"}}}");
    fx_close(x);
    CHECK(F.detaches == 1 && !F.kills); /* the client went, the process did not */
    fx_free(x);
}
static void start_fails(struct fx *x, enum err_code code, const char *msg, const char *want)
{
    struct err e;
    err_set(&e, code, "%s", msg);
    stream(x, START, "Authorization: Basic bm9uZTo=\r\n", TRUE_CMD);
    fake_done(&e);
    fx_until(x, want);
    HAS(x, "HTTP/1.1 200");
}
TEST(start, failures_travel_in_the_end)
{
    struct fx *x = envd();
    start_fails(x, E_NOT_FOUND, "cwd '/x' does not exist", "{\"error\":{\"code\":\"invalid_argument\",\"message\":\"cwd '/x' does not exist\"}}");
    start_fails(x, E_NOT_FOUND, "user 'none' does not exist", "{\"error\":{\"code\":\"unauthenticated\",\"message\":\"invalid username: 'none'\"}}");
    start_fails(x, E_QUOTA, "full", "\"resource_exhausted\"");
    stream(x, START, "", "{\"process\":{}}");
    fx_until(x, "\"invalid_argument\"");
    stream(x, START, "", "{not json");
    fx_until(x, "\"invalid_argument\"");
    fx_free(x);
}
TEST(start, a_timeout_is_not_an_exit)
{
    struct fx *x = envd();
    stream(x, START, "", TRUE_CMD);
    F.x->ops.started(F.x->arg, 5, 0);
    F.x->ops.exited(F.x->arg, &(struct exec_exit){.kind = EXIT_TIMEOUT, .code = 9, .timeout_ms = 10}, 0);
    fake_done(NULL);
    fx_until(x, "{\"error\":{\"code\":\"deadline_exceeded\"");
    CHECK(!strstr(x->in.p + 1, "\"end\""));
    fx_free(x);
}
TEST(start, the_death_of_the_sandbox_cuts)
{
    struct fx *x = envd();
    stream(x, START, "", TRUE_CMD);
    F.x->ops.started(F.x->arg, 5, 0);
    fx_until(x, "\"pid\":5");
    F.x->ops.exited(F.x->arg, &(struct exec_exit){.kind = EXIT_SIGNAL, .code = 9}, 0);
    x->core.sb.state = SB_STOPPING;
    fake_done(NULL);
    fx_until(x, NULL);
    CHECK(!memmem(x->in.p, x->in.n, "0\r\n\r\n", 5) && !memmem(x->in.p, x->in.n, "\"end\"", 5));
    fx_free(x);
}
TEST(connect, from_now_on_or_not_at_all)
{
    struct fx *x = envd();
    struct err e;
    stream(x, "/process.Process/Connect", "", "{\"process\":{\"pid\":77}}");
    CHECK_STR(F.unary.who, "77");
    CHECK(F.offset == EXEC_RECENT);
    err_set(&e, E_NOT_FOUND, "process 77 does not exist");
    fake_done(&e);
    fx_until(x, "{\"error\":{\"code\":\"not_found\",\"message\":\"process with pid 77 not found\"}}");
    stream(x, "/process.Process/Connect", "Connect-Timeout-Ms: 30\r\n", "{\"process\":{\"tag\":\"t\"}}");
    CHECK_STR(F.unary.who, "tag:t");
    F.x->ops.started(F.x->arg, 5, 0);
    fx_until(x, "\"deadline_exceeded\"");
    CHECK(F.detaches == 1 && !F.kills);
    fx_free(x);
}
TEST(process, unary_calls)
{
    struct fx *x = envd();
    struct proc_info p = {.pid = 7, .running = true};
    struct err e;
    rpc(x, "/process.Process/SendSignal", "", "{\"process\":{\"pid\":7},\"signal\":\"SIGNAL_SIGKILL\"}");
    CHECK(F.unary.signo == 9 && F.unary.group);
    fake_answer(NULL);
    fx_until(x, "\r\n\r\n{}");
    rpc(x, "/process.Process/SendSignal", "", "{\"process\":{\"pid\":7},\"signal\":\"SIGNAL_SIGTERM\"}");
    err_set(&e, E_GONE, "process 7 has ended");
    fake_answer(&e);
    fx_until(x, "{\"code\":\"not_found\",\"message\":\"process with pid 7 not found\"}");
    HAS(x, "HTTP/1.1 404");
    rpc(x, "/process.Process/SendSignal", "", "{\"process\":{\"pid\":7},\"signal\":\"SIGNAL_SIGHUP\"}");
    fx_until(x, "\"invalid_argument\"");
    rpc(x, "/process.Process/SendInput", "", "{\"process\":{\"pid\":7},\"input\":{\"stdin\":\"aGkK\"}}");
    CHECK(F.input.n == 3 && !memcmp(F.input.p, "hi\n", 3));
    fake_answer(NULL);
    fx_until(x, "\r\n\r\n{}");
    rpc(x, "/process.Process/SendInput", "", "{\"process\":{\"pid\":7},\"input\":{\"pty\":\"aGk\"}}");
    err_set(&e, E_GONE, "the process does not read its input");
    fake_answer(&e);
    fx_until(x, "\"code\":\"internal\"");
    rpc(x, "/process.Process/Update", "", "{\"process\":{\"pid\":7},\"pty\":{\"size\":{\"cols\":9,\"rows\":8}}}");
    F.list_cb(F.cb_arg, NULL, &p, 1); /* what runs is looked for first */
    CHECK(F.unary.cols == 9 && F.unary.rows == 8);
    fake_answer(NULL);
    fx_until(x, "\r\n\r\n{}");
    rpc(x, "/process.Process/SendInput", "", "{\"process\":{\"pid\":7},\"input\":{\"stdin\":\"\"}}");
    F.list_cb(F.cb_arg, NULL, &p, 1);
    fx_until(x, "\r\n\r\n{}");
    p.running = false; /* the agent still has its end */
    for (size_t i = 0; i < 3; i++) {
        static const char *const call[][2] = {{"Update", "\"pty\":{\"size\":{\"cols\":9,\"rows\":8}}"}, {"SendInput", "\"input\":{\"stdin\":\"\"}"}, {"CloseStdin", "\"later\":1"}};
        auto_buf path = {0}, body = {0};
        buf_printf(&path, "/process.Process/%s", call[i][0]);
        buf_printf(&body, "{\"process\":{\"pid\":7},%s}", call[i][1]);
        rpc(x, path.p, "", body.p);
        F.list_cb(F.cb_arg, NULL, &p, 1);
        fx_until(x, "process with pid 7 not found");
        HAS(x, "HTTP/1.1 404");
    }
    stream(x, "/process.Process/StreamInput", "", "{}"); /* a keepalive alone */
    fx_until(x, "no message names the process");
    rpc(x, "/process.Process/Nothing", "", "{}");
    fx_until(x, "HTTP/1.1 501");
    fx_free(x);
}
TEST(compose, looks_copies_names_and_removes)
{
    struct fx *x = envd();
    struct file_entry a = fake_entry, b = fake_entry, w = fake_entry;
    a.path = "/home/user/a", b.path = "/home/user/b", w.path = "/home/user/w", w.name = "w";
    ask(x, "POST", "/files/compose", AUTH, "{\"source_paths\":[\"a\",\"b\"],\"destination\":\"w\"}", strlen("{\"source_paths\":[\"a\",\"b\"],\"destination\":\"w\"}"));
    F.entry_cb(F.cb_arg, NULL, &a);
    F.entry_cb(F.cb_arg, NULL, &b);
    CHECK(F.wr && F.rd);
    CHECK(!strcmp(F.path.p, "/home/user/a"));
    F.input.n = 0, F.rd_consumed = 0;
    F.room = 2; /* of three */
    F.rd->ops.data(F.rd->arg, (const unsigned char *)"one", 3);
    CHECK_INT(F.rd_consumed, 0);
    F.room = 100;
    F.wr->ops.room(F.wr->arg);
    CHECK_INT(F.rd_consumed, 3);
    fake_read_done(NULL);
    CHECK(!strcmp(F.path.p, "/home/user/b"));
    fake_read_done(NULL); /* an empty one */
    CHECK(F.wr_eof && F.input.n == 3 && !memcmp(F.input.p, "one", 3));
    fake_write_done(NULL);
    F.entry_cb(F.cb_arg, NULL, &w); /* it has its name */
    CHECK(!strcmp(F.path.p, "/home/user/a"));
    F.entry_cb(F.cb_arg, NULL, NULL);
    CHECK(!strcmp(F.path.p, "/home/user/b"));
    F.entry_cb(F.cb_arg, NULL, NULL);
    fx_until(x, "{\"path\":\"/home/user/w\",\"name\":\"w\",\"type\":\"file\"}");
    fx_free(x);
}
TEST(process, input_as_a_stream)
{
    static const char *const msg[] = {"{\"start\":{\"process\":{\"pid\":7}}}", "{\"data\":{\"input\":{\"stdin\":\"YWI=\"}}}", "{\"keepalive\":{}}",
                                      "{\"data\":{\"input\":{\"stdin\":\"Y2Q=\"}}}"};
    struct fx *x = envd();
    struct proc_info p = {.pid = 7, .running = true};
    auto_buf h = {0}, b = {0};
    struct err e;
    for (size_t i = 0; i < 4; i++)
        rpc_envelope(&b, 0, msg[i], strlen(msg[i]));
    buf_printf(&h, AUTH "Content-Type: application/connect+json\r\nTransfer-Encoding: chunked\r\n");
    F.input.n = 0;
    ask(x, "POST", "/process.Process/StreamInput", h.p, NULL, 0);
    for (size_t i = 0; i < b.n; i++) { /* a byte at a time */
        char c[8] = "1\r\n?\r\n";
        c[3] = b.p[i];
        fx_send(x, c, 6);
    }
    F.list_cb(F.cb_arg, NULL, &p, 1);
    fx_turn(x, 5);
    CHECK(F.input.n == 2);
    fake_answer(NULL);
    fx_turn(x, 5);
    CHECK(F.input.n == 4 && !memcmp(F.input.p, "abcd", 4));
    fx_sendz(x, "0\r\n\r\n");
    fx_turn(x, 5), fx_read(x);
    CHECK(!strstr(x->in.p ? x->in.p : "", "200")); /* not before it was taken */
    fake_answer(NULL);
    fx_until(x, "HTTP/1.1 200");
    fx_turn(x, 5), fx_read(x);
    CHECK(memmem(x->in.p, x->in.n, "\0\0\0\0\2{}", 7) && memmem(x->in.p, x->in.n, "\2\0\0\0\2{}", 7));
    stream(x, "/process.Process/StreamInput", "", msg[0]);
    F.list_cb(F.cb_arg, NULL, NULL, 0);
    fx_until(x, "{\"error\":{\"code\":\"not_found\",\"message\":\"process with pid 7 not found\"}}");
    stream(x, "/process.Process/StreamInput", "", msg[1]);
    fx_until(x, "the first message must name the process");
    stream(x, "/process.Process/StreamInput", "Connect-Timeout-Ms: 20\r\n", msg[0]);
    fx_until(x, "\"deadline_exceeded\"");
    err_set(&e, E_CANCELED, "gone");
    F.list_cb(F.cb_arg, &e, NULL, 0); /* nobody waits any more */
    fx_free(x);
}
TEST(process, list_and_close)
{
    struct fx *x = envd();
    char *argv[] = {(char *)(uintptr_t)"/bin/bash", (char *)(uintptr_t)"-c", NULL}, *env[] = {(char *)(uintptr_t)"A=b=c", NULL};
    struct proc_info p[2] = {{.pid = 7, .tag = "t", .argv = argv, .env = env, .cwd = "/tmp", .running = true, .pty = true}, {.pid = 8, .argv = argv}};
    rpc(x, "/process.Process/List", "", "{}");
    F.list_cb(F.cb_arg, NULL, p, 2);
    fx_until(x, "{\"processes\":[{\"pid\":7,\"tag\":\"t\",\"config\":{\"cmd\":\"/bin/bash\",\"args\":[\"-c\"],\"envs\":{\"A\":\"b=c\"},\"cwd\":\"/tmp\"}}]}");
    rpc(x, "/process.Process/CloseStdin", "", "{\"process\":{\"pid\":7}}");
    F.list_cb(F.cb_arg, NULL, p, 2);
    fx_until(x, "\"internal\""); /* a terminal */
    p[0].pty = false;
    rpc(x, "/process.Process/CloseStdin", "", "{\"process\":{\"tag\":\"t\"}}");
    F.list_cb(F.cb_arg, NULL, p, 2);
    fake_answer(NULL);
    fx_until(x, "\r\n\r\n{}");
    rpc(x, "/process.Process/CloseStdin", "", "{\"process\":{\"pid\":8}}");
    F.list_cb(F.cb_arg, NULL, p, 2);
    fx_until(x, "process with pid 8 not found");
    fx_free(x);
}
TEST(filesystem, unary_calls)
{
    struct fx *x = envd();
    struct err e;
    err_set(&e, E_NOT_FOUND, "path '/home/user/x' does not exist");
    rpc(x, "/filesystem.Filesystem/Stat", "", "{\"path\":\"x\"}");
    F.entry_cb(F.cb_arg, &e, NULL);
    fx_until(x, "{\"code\":\"not_found\"");
    rpc(x, "/filesystem.Filesystem/Remove", "", "{\"path\":\"x\"}");
    F.entry_cb(F.cb_arg, &e, NULL);
    fx_until(x, "\r\n\r\n{}");
    rpc(x, "/filesystem.Filesystem/MakeDir", "", "{\"path\":\"x\"}");
    F.entry_cb(F.cb_arg, &e, NULL);
    CHECK_INT(F.mode, 0755);
    F.entry_cb(F.cb_arg, NULL, &fake_entry);
    fx_until(x, "{\"entry\":{\"name\":\"f\"");
    rpc(x, "/filesystem.Filesystem/MakeDir", "", "{\"path\":\"f\"}");
    F.entry_cb(F.cb_arg, NULL, &fake_entry);
    fx_until(x, "\"invalid_argument\"");
    struct file_entry dir = fake_entry;
    dir.type = 'd';
    rpc(x, "/filesystem.Filesystem/MakeDir", "", "{\"path\":\"f\"}");
    F.entry_cb(F.cb_arg, NULL, &dir);
    fx_until(x, "\"already_exists\"");
    HAS(x, "HTTP/1.1 409");
    rpc(x, "/filesystem.Filesystem/Stat", "", "{\"path\":\"~other/x\"}");
    fx_until(x, "\"invalid_argument\"");
    rpc(x, "/filesystem.Filesystem/Stat", "", "{}");
    CHECK_STR(F.path.p, "~");
    F.entry_cb(F.cb_arg, NULL, &dir);
    fx_until(x, "DIRECTORY");
    rpc(x, "/filesystem.Filesystem/ListDir", "", "{\"path\":\"/d\",\"depth\":2}");
    F.list_ops->entries(F.cb_arg, &fake_entry, 1);
    F.list_ops->done(F.cb_arg, NULL);
    fx_until(x, "{\"entries\":[{\"name\":\"f\"");
    fx_free(x);
}
TEST(filesystem, watches)
{
    struct fx *x = envd();
    struct file_entry dir = fake_entry;
    dir.type = 'd';
    stream(x, "/filesystem.Filesystem/WatchDir", "", "{\"path\":\"f\"}");
    F.entry_cb(F.cb_arg, NULL, &fake_entry);
    fx_until(x, "\"invalid_argument\"");
    dir.remote = true;
    stream(x, "/filesystem.Filesystem/WatchDir", "", "{\"path\":\"d\"}");
    F.entry_cb(F.cb_arg, NULL, &dir);
    fx_until(x, "network file system");
    HAS(x, "\"invalid_argument\"");
    stream(x, "/filesystem.Filesystem/WatchDir", "Keepalive-Ping-Interval: 1\r\n", "{\"path\":\"d\",\"recursive\":true,\"allowNetworkMounts\":true}");
    F.entry_cb(F.cb_arg, NULL, &dir);
    F.watch->ops.ready(F.watch->arg);
    fx_until(x, "{\"start\":{}}");
    F.watch->ops.change(F.watch->arg, 'w', "sub/f.txt", 1, NULL);
    fx_until(x, "{\"filesystem\":{\"name\":\"sub/f.txt\",\"type\":\"EVENT_TYPE_WRITE\"}}");
    fx_until(x, "{\"keepalive\":{}}");
    fx_close(x);
    CHECK_INT(F.watch_cancels, 1);
    dir.remote = false;
    rpc(x, "/filesystem.Filesystem/CreateWatcher", "", "{\"path\":\"d\"}");
    F.entry_cb(F.cb_arg, NULL, &dir);
    F.watch->ops.ready(F.watch->arg);
    fx_until(x, "{\"watcherId\":\"w");
    char id[22], body[64];
    memcpy(id, strstr(x->in.p, ":\"w") + 2, 21), id[21] = 0;
    F.watch->ops.change(F.watch->arg, 'c', "a", 1, NULL);
    F.watch->ops.change(F.watch->arg, 'o', "", 2, NULL);
    F.watch->ops.change(F.watch->arg, 'r', "b", 3, NULL);
    snprintf(body, sizeof body, "{\"watcherId\":\"%s\"}", id);
    rpc(x, "/filesystem.Filesystem/GetWatcherEvents", "", body);
    fx_until(x, "{\"events\":[{\"name\":\"a\",\"type\":\"EVENT_TYPE_CREATE\"},{\"name\":\"b\",\"type\":\"EVENT_TYPE_RENAME\"}]}");
    rpc(x, "/filesystem.Filesystem/GetWatcherEvents", "", body);
    fx_until(x, "{\"events\":[]}");
    rpc(x, "/filesystem.Filesystem/RemoveWatcher", "", body);
    fx_until(x, "\r\n\r\n{}");
    CHECK_INT(F.watch_cancels, 2);
    rpc(x, "/filesystem.Filesystem/RemoveWatcher", "", body);
    fx_until(x, "\"not_found\"");
    fx_free(x);
}

/* ---- uploads ---- */
#define FORM AUTH "Content-Type: multipart/form-data; boundary=B\r\n"
#define PART(name) "--B\r\nContent-Disposition: form-data; name=\"file\"; filename=\"" name "\"\r\n\r\n"
static void wrote(const char *path)
{
    struct file_write *f = F.wr;
    struct file_entry en = fake_entry;
    en.path = path, en.name = strrchr(path, '/') + 1;
    CHECK(F.wr_eof);
    F.wr = NULL;
    f->ops.done(f->arg, NULL, &en);
    free(f);
}
static void post(struct fx *x, const char *target, const char *headers, const char *body) { ask(x, "POST", target, headers, body, strlen(body)); }

TEST(upload, several_files_one_after_the_other)
{
    struct fx *x = envd();
    post(x, "/files", FORM "X-Metadata-K: v\r\n", PART("/x/a b.txt") "one\r\n--B\r\nContent-Disposition: form-data; name=\"note\"\r\n\r\nignored\r\n" PART("d/%22q%22") "two\r\n--B--\r\n");
    CHECK_STR(F.path.p, "/x/a b.txt");
    CHECK(F.input.n == 3 && !memcmp(F.input.p, "one", 3));
    wrote("/x/a b.txt");
    CHECK_STR(F.path.p, "d/\"q\"");
    CHECK(F.input.n == 3 && !memcmp(F.input.p, "two", 3));
    wrote("/home/user/d/\"q\"");
    fx_until(x, "\r\n\r\n[{\"path\":\"/x/a b.txt\",\"name\":\"a b.txt\",\"type\":\"file\",\"metadata\":{\"k\":\"v\"}},"
                "{\"path\":\"/home/user/d/\\\"q\\\"\",\"name\":\"\\\"q\\\"\",\"type\":\"file\",\"metadata\":{\"k\":\"v\"}}]");
    fx_free(x);
}
TEST(upload, the_query_names_the_target)
{
    struct fx *x = envd();
    post(x, "/files?path=t.txt", FORM, "--B\r\nContent-Disposition: form-data; name=\"file\"\r\n\r\nx\r\n--B--\r\n");
    CHECK_STR(F.path.p, "t.txt");
    wrote("/home/user/t.txt");
    fx_until(x, "\r\n\r\n[{\"path\":\"/home/user/t.txt\",\"name\":\"t.txt\",\"type\":\"file\"}]");
    post(x, "/files?path=t.txt", FORM, PART("a") "x\r\n" PART("b") "y\r\n--B--\r\n");
    wrote("/home/user/t.txt");
    fx_until(x, "you cannot upload multiple files to the same path 't.txt'");
    HAS(x, "HTTP/1.1 400");
    fx_free(x);
}
TEST(upload, at_the_pace_of_the_sandbox)
{
    struct fx *x = envd();
    F.room = 2;
    post(x, "/files?path=t", AUTH "Content-Type: application/octet-stream\r\n", "abcdef");
    CHECK(F.input.n == 2 && !F.wr_eof);
    F.room = 3;
    F.wr->ops.room(F.wr->arg);
    CHECK(F.input.n == 5 && !F.wr_eof);
    F.room = 100;
    F.wr->ops.room(F.wr->arg);
    fx_turn(x, 5);
    CHECK(F.input.n == 6 && F.wr_eof);
    wrote("/home/user/t");
    fx_until(x, "\"name\":\"t\"");
    fx_free(x);
}
TEST(upload, packed)
{
    struct fx *x = envd();
    static char text[300000], packed[4000];
    memset(text, 'a', sizeof text);
    size_t n = gzip(text, sizeof text, packed, sizeof packed);
    F.room = 1000;
    ask(x, "POST", "/files?path=t", AUTH "Content-Type: application/octet-stream\r\nContent-Encoding: gzip\r\n", packed, n);
    CHECK_INT(F.input.n, 1000);
    while (F.wr && !F.wr_eof) {
        F.room = 50000;
        F.wr->ops.room(F.wr->arg);
        fx_turn(x, 3);
    }
    CHECK_INT(F.input.n, sizeof text);
    wrote("/home/user/t");
    fx_until(x, "\"name\":\"t\"");
    ask(x, "POST", "/files?path=t", AUTH "Content-Type: application/octet-stream\r\nContent-Encoding: gzip\r\n", packed, n - 4);
    F.room = SIZE_MAX / 2;
    F.wr->ops.room(F.wr->arg);
    fx_until(x, "HTTP/1.1 400");
    CHECK_INT(F.wr_cancels, 1);
    x->core.sb.disk_mib = 0; /* a bomb is what does not fit the disk */
    ask(x, "POST", "/files?path=t", AUTH "Content-Type: application/octet-stream\r\nContent-Encoding: gzip\r\n", packed, n);
    fx_until(x, "HTTP/1.1 507");
    fx_free(x);
}
TEST(upload, refusals)
{
    struct fx *x = envd();
    struct err e;
    post(x, "/files?path=t", AUTH "Content-Type: text/plain\r\n", "x");
    fx_until(x, "HTTP/1.1 400");
    post(x, "/files", AUTH "Content-Type: application/octet-stream\r\n", "x");
    fx_until(x, "HTTP/1.1 400");
    post(x, "/files", FORM, "--B\r\nContent-Disposition: form-data; name=\"file\"\r\n\r\nx\r\n--B--\r\n");
    fx_until(x, "HTTP/1.1 400");
    post(x, "/files", FORM, PART("a") "cut");
    fx_until(x, "HTTP/1.1 400");
    post(x, "/files?path=t&username=none", AUTH "Content-Type: application/octet-stream\r\n", "x");
    err_set(&e, E_NOT_FOUND, "user 'none' does not exist");
    fake_write_done(&e);
    fx_until(x, "{\"code\":401,\"message\":\"error looking up user 'none': ");
    post(x, "/files?path=t", AUTH "Content-Type: application/octet-stream\r\n", "x");
    err_set(&e, E_QUOTA, "no space left on device");
    fake_write_done(&e);
    fx_until(x, "{\"code\":507,");
    fx_free(x);
}
TEST_MAIN
