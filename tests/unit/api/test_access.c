/* Who may come in by which port of a sandbox, over a fake core. What e2e/test_doors.py sees of a whole daemon, here with every mix of credentials. */
#include "api/e2b/access.h"
#include "api/e2b/e2b.h"
#include "api/preview/preview.h"
#include "api/e2b/signature.h"
#include "fake.h"

#define TOKEN "0011223344556677889900112233445566778899"
#define OTHER "ff11223344556677889900112233445566778899"
#define OK_TOKEN "X-Access-Token: " TOKEN "\r\n"
#define BAD_TOKEN "X-Access-Token: " OTHER "\r\n"
#define OK_KEY "X-API-Key: " KEY "\r\n"
#define BAD_KEY "Authorization: Bearer e2b_ffff\r\n"
#define PAGE "Origin: https://evil.example\r\nSec-Fetch-Site: cross-site\r\n"
#define OPEN_TO_PAGES "Access-Control-Allow-Origin"

static struct fx *box(void)
{
    struct fx *x = fx_new();
    snprintf(x->core.sb.token, sizeof x->core.sb.token, "%s", TOKEN);
    return x;
}

/* Status of the answer; 0: none yet, it is at work. TCP, where no peer is known. */
static int ask(struct fx *x, const char *method, unsigned port, const char *path, const char *headers)
{
    auto_buf b = {0};
    fx_open_tcp(x);
    buf_printf(&b, "%s %s HTTP/1.1\r\nHost: %u-" ID ".evil.example\r\n%s%s\r\n%s", method, path, port, headers,
               strcmp(method, "POST") ? "" : "Content-Type: text/plain\r\nContent-Length: 12\r\n", strcmp(method, "POST") ? "" : "{\"code\":\"x\"}");
    fx_send(x, b.p, b.n);
    fx_turn(x, 5), fx_read(x);
    return x->in.n > 12 ? atoi(x->in.p + 9) : 0;
}
static int execute(struct fx *x, const char *headers) { return ask(x, "POST", 49999, "/execute", headers); }
static int contexts(struct fx *x, const char *headers) /* 200: core was asked */
{
    E.list_cb = NULL;
    int status = ask(x, "GET", 49999, "/contexts", headers);
    if (status || !E.list_cb)
        return status;
    E.list_cb(E.arg, NULL, NULL, 0);
    fx_until(x, "\r\n\r\n[]");
    return atoi(x->in.p + 9);
}

TEST(interpreter, runs_nothing_without_a_credential)
{
    static const char *const none[] = {"", PAGE, BAD_TOKEN, BAD_KEY, OK_KEY BAD_TOKEN, "X-Access-Token: \r\n", "X-Access-Token: " TOKEN "0\r\n", "Cookie: X-Access-Token=" TOKEN "\r\n"};
    static const char *const calls[][2] = {{"POST", "/execute"}, {"GET", "/contexts"}, {"POST", "/contexts"}, {"DELETE", "/contexts/c1"}, {"POST", "/contexts/c1/restart"},
                                           {"GET", "/nothing"}, {"PUT", "/execute"}, {"POST", "/health"}, {"POST", "/%65xecute"}, {"GET", "/%63ontexts"}};
    struct fx *x = box();
    for (size_t i = 0; i < sizeof none / sizeof *none; i++)
        for (size_t k = 0; k < sizeof calls / sizeof *calls; k++) {
            E.v = NULL, E.arg = NULL;
            CHECK_INT(ask(x, calls[k][0], 49999, calls[k][1], none[i]), 401);
            CHECK(!E.v && !E.arg); /* core was not asked for anything */
            CHECK(!strstr(x->in.p, OPEN_TO_PAGES));
        }
    HAS(x, "X-Access-Token");
    fx_free(x);
}
TEST(interpreter, says_what_is_missing_and_what_is_wrong)
{
    struct fx *x = box();
    execute(x, "");
    HAS(x, "send envdAccessToken of its create or connect as X-Access-Token, or an API key as X-API-Key");
    execute(x, BAD_TOKEN);
    HAS(x, "X-Access-Token is not this sandbox's");
    execute(x, BAD_KEY);
    HAS(x, "the API key is unknown, was revoked or has expired");
    fx_free(x);
}
TEST(interpreter, takes_the_access_token_or_a_key)
{
    static const char *const good[] = {OK_TOKEN, OK_KEY, "Authorization: Bearer " KEY "\r\n", OK_TOKEN PAGE, OK_TOKEN BAD_KEY};
    struct fx *x = box();
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        CHECK_INT(execute(x, good[i]), 0);
        CHECK(E.v);
        CHECK_INT(contexts(x, good[i]), 200);
    }
    fx_free(x);
}
TEST(interpreter, contexts_take_the_token_that_the_sdks_send_there)
{
    struct fx *x = box();
    char traffic[PREVIEW_DERIVED], head[100];
    preview_derived_token(&x->core.sb, traffic);
    CHECK_INT(strlen(traffic), 40);
    CHECK(strcmp(traffic, TOKEN));
    snprintf(head, sizeof head, "E2b-Traffic-Access-Token: %s\r\n", traffic);
    CHECK_INT(contexts(x, head), 200);
    CHECK_INT(execute(x, head), 401); /* it runs no code */
    CHECK_INT(ask(x, "GET", 49983, "/envs", head), 401);
    traffic[0] ^= 1;
    snprintf(head, sizeof head, "E2b-Traffic-Access-Token: %s\r\n", traffic);
    CHECK_INT(contexts(x, head), 401);
    kept_set(&x->core.sb.kept.preview_token, "visitors"); /* `hutch url` tells it: for ports, not for contexts */
    CHECK_INT(contexts(x, "E2b-Traffic-Access-Token: visitors\r\n"), 401);
    CHECK_INT(contexts(x, OK_TOKEN), 403);
    CHECK_INT(contexts(x, OK_TOKEN "E2b-Traffic-Access-Token: visitors\r\n"), 200);
    traffic[0] ^= 1;
    snprintf(head, sizeof head, "E2b-Traffic-Access-Token: %s\r\n", traffic);
    CHECK_INT(contexts(x, head), 200);
    fx_free(x);
}
TEST(envd, asks_for_the_same)
{
    static const char *const none[] = {"", PAGE, BAD_TOKEN, BAD_KEY, OK_KEY BAD_TOKEN};
    struct fx *x = box();
    for (size_t i = 0; i < sizeof none / sizeof *none; i++) {
        CHECK_INT(ask(x, "GET", 49983, "/envs", none[i]), 401);
        CHECK_INT(ask(x, "POST", 49983, "/process.Process/Start", none[i]), 401);
        CHECK_INT(ask(x, "GET", 49983, "/files?path=a", none[i]), 401);
        CHECK_INT(ask(x, "POST", 49983, "/files/compose", none[i]), 401);
        CHECK(!strstr(x->in.p, OPEN_TO_PAGES));
    }
    CHECK_INT(ask(x, "GET", 49983, "/envs", OK_TOKEN PAGE), 200);
    HAS(x, OPEN_TO_PAGES ": *");
    CHECK_INT(ask(x, "GET", 49983, "/envs", OK_KEY), 200);
    fx_free(x);
}
TEST(envd, one_that_was_made_insecure_asks_too)
{
    struct fx *x = box();
    kv_set(&x->core.sb.kept.dialect, S("e2b.insecure"),
           S("true")); /* as earlier versions kept it */
    CHECK_INT(ask(x, "GET", 49983, "/envs", ""), 401);
    CHECK_INT(execute(x, ""), 401);
    fx_free(x);
}
TEST(envd, an_empty_token_opens_nothing)
{
    struct fx *x = fx_new();
    char sig[E2B_SIGNATURE_MAX], path[200], traffic[PREVIEW_DERIVED];
    e2b_signature(S("a"), "read", S(""), "", (struct str){0}, sig); /* anybody can make it */
    auto_buf enc = {0};
    for (char *c = sig; *c; c++)
        *c == '+' ? buf_puts(&enc, "%2B") : buf_putc(&enc, *c);
    snprintf(path, sizeof path, "/files?path=a&signature=%s", enc.p);
    CHECK_INT(ask(x, "GET", 49983, path, ""), 401);
    CHECK_INT(ask(x, "GET", 49983, "/envs", "X-Access-Token: \r\n"), 401);
    preview_derived_token(&x->core.sb, traffic);
    CHECK_STR(traffic, "");
    CHECK_INT(contexts(x, "E2b-Traffic-Access-Token: \r\n"), 401);
    auto_buf plain = {0};
    buf_printf(&plain, "GET %s HTTP/1.1\r\nHost: localhost\r\n\r\n", path);
    fx_open_tcp(x);
    fx_sendz(x, plain.p);
    fx_until(x, "invalid signature");
    fx_free(x);
}
TEST(doors, health_tells_anyone_and_no_page)
{
    struct fx *x = box();
    CHECK_INT(ask(x, "GET", 49983, "/health", PAGE), 204);
    CHECK(!strstr(x->in.p, OPEN_TO_PAGES));
    CHECK_INT(ask(x, "GET", 49999, "/health", PAGE), 200);
    CHECK(!strstr(x->in.p, OPEN_TO_PAGES));
    CHECK_INT(ask(x, "GET", 49983, "/health", PAGE OK_TOKEN), 204);
    HAS(x, OPEN_TO_PAGES ": *");
    fx_free(x);
}
TEST(doors, a_page_may_ask_what_it_may_send)
{
    struct fx *x = box();
    for (unsigned port = 49983; port <= 49999; port += 16) {
        CHECK_INT(ask(x, "OPTIONS", port, "/execute", PAGE "Access-Control-Request-Method: POST\r\nAccess-Control-Request-Headers: x-access-token\r\n"), 204);
        HAS(x, "Access-Control-Allow-Headers: x-access-token");
        CHECK(!strstr(x->in.p, "Allow-Credentials"));
    }
    fx_free(x);
}
static void not_woken(struct fx *x)
{
    struct err e;
    err_set(&e, E_UNAVAILABLE, "there is no room");
    F.kill.cb(F.kill.arg, NULL, &e);
    fx_until(x, "The sandbox was not found");
    HAS(x, "HTTP/1.1 502");
}
TEST(doors, nobody_is_woken_without_a_credential)
{
    static const struct { const char *method; unsigned port; const char *path, *headers; int status; } no[] = {
        {"GET", 49983, "/health", "", 502},     {"GET", 49983, "/envs", "", 401},       {"GET", 49983, "/files?path=a", BAD_TOKEN, 401},
        {"POST", 49999, "/execute", PAGE, 401}, {"GET", 49999, "/contexts", BAD_KEY, 401}, {"GET", 49999, "/health", "", 502},
    };
    struct fx *x = box();
    x->core.sb.state = SB_PAUSED;
    x->core.sb.life = (struct life){.paused = PAUSE_DISK, .memory = true, .auto_resume = true};
    F.wakes = 0;
    for (size_t i = 0; i < sizeof no / sizeof *no; i++)
        CHECK_INT(ask(x, no[i].method, no[i].port, no[i].path, no[i].headers), no[i].status);
    CHECK_INT(F.wakes, 0);
    CHECK_INT(execute(x, OK_TOKEN), 0);
    CHECK_INT(F.wakes, 1);
    not_woken(x);
    CHECK_INT(ask(x, "GET", 8080, "/", ""), 0); /* its ports are public: that is what auto_resume is for */
    CHECK_INT(F.wakes, 2);
    not_woken(x);
    kept_set(&x->core.sb.kept.preview_token, "visitors");
    CHECK_INT(ask(x, "GET", 8080, "/", ""), 403);
    CHECK_INT(F.wakes, 2);
    fx_free(x);
}
TEST(doors, each_has_its_check)
{
    size_t guests = 0;
    for (size_t i = 0; i < ndialects; i++)
        for (size_t k = 0; k < dialects[i]->ndoors; k++) {
            const struct door *d = &dialects[i]->doors[k];
            CHECK(d->may && d->serve && d->name);
            guests += d->port == 0;
        }
    CHECK_INT(guests, 1);
    auto_buf b = {0};
    api_doors(&b);
    CHECK(strstr(b.p, "port 49983 envd\n") && strstr(b.p, "port 49999 interpreter\n") && strstr(b.p, "route POST /v1/sandboxes key\n") &&
          strstr(b.p, "route GET /healthz open\n") && strstr(b.p, "route POST /v1/shutdown socket\n") && !strstr(b.p, "guest") && strstr(b.p, "route * /files open\n"));
}

TEST_MAIN
