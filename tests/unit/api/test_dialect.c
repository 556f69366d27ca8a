/* A toy dialect: the smallest there is. It proves what ARCHITECTURE says about adding one, and that
 * those that are there do not notice. */
#include "api/req.h"
#include "fake.h"

static struct {
    int starts, stops, state;
    char last[64];
} toy;

static void *toy_start(struct api *a)
{
    CHECK(a != NULL);
    toy.starts++;
    return &toy.state;
}
static void toy_stop(void *state)
{
    CHECK(state == &toy.state);
    toy.stops++;
}
static bool toy_claims(struct api *a, struct http_stream *s)
{
    (void)a;
    return http_req_header(s, "X-Toy").p != NULL;
}
/* One line of text, with the number of what it was about. */
static void toy_fail(struct http_stream *s, const struct err *e, enum about about)
{
    char text[300];
    int n = snprintf(text, sizeof text, "toy says %s (%d): %s\n", err_name(e->code), (int)about,
                     e->msg);
    http_reply(s, about == ABOUT_METHOD ? 405 : err_http(e->code), "text/plain", text, (size_t)n);
}
extern const struct dialect toy_dialect;
static void toy_get(struct http_stream *s, void *arg)
{
    struct sandbox *sb = api_sandbox(arg, s);
    if (!sb)
        return;
    CHECK(api_state(arg, &toy_dialect) == &toy.state);
    struct jw *w = reply_begin(s);
    jw_obj(w);
    jw_kv_str(w, "toy", sb->id);
    jw_end(w);
    reply_send(s, 200);
}
static void on_killed(void *arg, struct sandbox *sb, const struct err *e)
{
    (void)sb;
    req_none(arg, e, ABOUT_SANDBOX);
}
/* One that has checked a credential of its own says so; else nobody asks, and nobody sees anything. */
static void toy_open(struct http_stream *s, void *arg)
{
    api_vouch(s);
    toy_get(s, arg);
}

static void toy_delete(struct http_stream *s, void *arg)
{
    struct err e;
    struct sandbox *sb = api_sandbox(arg, s);
    struct pause_spec how = {0};
    if (!sb)
        return;
    struct req *r = req_new(arg, s, sizeof *r, NULL);
    req_hold(r);
    req_settle(r, sandbox_pause(sb, &how, on_killed, r, &e), &e, ABOUT_SANDBOX);
}
static void on_body(struct http_stream *s, void *a, const char *p, size_t n)
{
    (void)a;
    snprintf(toy.last, sizeof toy.last, "%.*s", (int)n, p);
    reply_none(s);
}
static void toy_post(struct http_stream *s, void *a) { api_body(a, s, on_body); }

static struct may toy_may(struct api *a, struct http_stream *s, const struct sandbox *sb)
{
    (void)a, (void)sb;
    if (str_eqz(http_req_header(s, "X-Toy-Token"), "right"))
        return (struct may){0};
    return (struct may){.status = 401, .say = "bring X-Toy-Token"};
}
static void toy_port(struct api *a, struct http_stream *s, struct sandbox *sb, unsigned port)
{
    struct err e;
    (void)a, (void)sb;
    if (str_eqz(http_path(s), "/fails"))
        api_fail(s, (err_set(&e, E_CONFLICT, "port %u", port), &e), ABOUT_SANDBOX);
    else
        http_reply(s, 200, "text/plain", "toy port\n", 9);
}

static const struct api_route routes[] = {
    {.method = "GET", .pattern = "/v1/sandboxes/{id}", .fn = toy_get}, /* native has the same */
    {.method = "DELETE", .pattern = "/toy/{id}", .fn = toy_delete},
    {.method = "POST", .pattern = "/toy", .fn = toy_post},
    {.method = "GET", .pattern = "/toy/open/{id}", .fn = toy_open, .flags = ROUTE_OPEN},
};
static const struct door doors[] = {{4444, "toy", toy_may, toy_port}};
const struct dialect toy_dialect = {
    .name = "toy",
    .claims = toy_claims,
    .routes = routes,
    .nroutes = sizeof routes / sizeof *routes,
    .doors = doors,
    .ndoors = 1,
    .fail = toy_fail,
    .preview_header = "X-Toy-Preview",
    .start = toy_start,
    .stop = toy_stop,
};

/* ---- the fixture: the toy is asked first, then all that there are ---- */
static const struct dialect *table[16] = {&toy_dialect};
static struct fx *toy_new(void)
{
    memset(&toy, 0, sizeof toy);
    for (size_t i = 0; i < ndialects; i++)
        table[1 + i] = dialects[i];
    return fx_new_with(table, ndialects + 1);
}
static const char *ask(struct fx *x, const char *method, const char *target, const char *headers,
                       const char *body)
{
    auto_buf b = {0};
    fx_open(x);
    buf_printf(&b, "%s %s HTTP/1.1\r\n%s%s", method, target,
               strstr(headers, "Host:") ? "" : "Host: localhost\r\n", headers);
    if (body)
        buf_printf(&b, "Content-Length: %zu\r\n", strlen(body));
    buf_printf(&b, "\r\n%s", body ? body : "");
    fx_send(x, b.p, b.n);
    fx_until(x, "\r\n\r\n");
    fx_turn(x, 5);
    fx_read(x);
    return x->in.p;
}
#define TOY "X-Toy: 1\r\n"

TEST(dialect, has_its_own_routes)
{
    struct fx *x = toy_new();
    CHECK_INT(toy.starts, 1);
    ask(x, "GET", "/v1/sandboxes/" ID, TOY, NULL);
    HAS(x, "200 OK");
    HAS(x, "{\"toy\":\"" ID "\"}");
    ask(x, "GET", "/v1/health", TOY, NULL); /* of native alone */
    HAS(x, "404 Not Found");
    HAS(x, "toy says not_found");
    ask(x, "GET", "/toy/open/" ID, "",
        NULL); /* of the toy alone, and nobody said that it is for the toy */
    HAS(x, "404 Not Found");
    HAS(x, "\"error\":{\"code\":\"not_found\"");
    fx_free(x);
    CHECK_INT(toy.stops, 1);
}

TEST(dialect, has_its_own_errors)
{
    struct fx *x = toy_new();
    char about[64];
    ask(x, "GET", "/v1/sandboxes/nobody", TOY, NULL);
    snprintf(about, sizeof about, "toy says not_found (%d): ", ABOUT_SANDBOX);
    HAS(x, about);
    ask(x, "GET", "/toy", TOY, NULL);
    HAS(x, "HTTP/1.1 405");
    HAS(x, "Allow: POST\r\n");
    HAS(x, "toy says invalid");
    err_set(&F.refuse, E_RATE, "not now");
    ask(x, "DELETE", "/toy/" ID, TOY, NULL); /* refused at once: req_settle */
    HAS(x, "HTTP/1.1 429");
    HAS(x, "toy says rate");
    fx_open(x);
    fx_sendz(x, "DELETE /toy/" ID " HTTP/1.1\r\nHost: localhost\r\n" TOY
                "\r\n"); /* and later: req_none */
    F.kill.cb(F.kill.arg, NULL, &(struct err){.code = E_GUEST, .msg = "broke"});
    fx_until(x, "\r\n\r\n");
    HAS(x, "toy says guest");
    fx_free(x);
}

TEST(dialect, is_checked_like_any_other)
{
    struct fx *x = toy_new();
    fx_open_tcp(x);
    fx_sendz(x, "GET /v1/sandboxes/" ID " HTTP/1.1\r\nHost: localhost\r\n" TOY "\r\n");
    fx_until(x, "toy says unauthenticated");
    HAS(x, "HTTP/1.1 401");
    fx_open_tcp(x);
    fx_sendz(x, "GET /v1/sandboxes/" ID " HTTP/1.1\r\nHost: localhost\r\nX-API-Key: " KEY "\r\n" TOY
                "\r\n");
    fx_until(x, "{\"toy\":");
    fx_open_tcp(x);
    fx_sendz(x, "GET /toy/open/" ID " HTTP/1.1\r\nHost: localhost\r\n" TOY "\r\n");
    fx_until(x, "{\"toy\":");
    ask(x, "GET", "/v1/sandboxes/" ID, "Host: evil.example\r\n" TOY, NULL);
    HAS(x, "HTTP/1.1 403");
    HAS(x, "toy says denied");
    ask(x, "GET", "/v1/sandboxes/" ID, "Origin: https://evil.example\r\n" TOY, NULL);
    HAS(x, "HTTP/1.1 403");
    CHECK(!strstr(x->in.p, "Access-Control"));
    fx_free(x);
}

/* Without DIALECT_STRICT_TYPE it takes any type of body. */
TEST(dialect, says_how_strict_it_is)
{
    struct fx *x = toy_new();
    ask(x, "POST", "/toy", TOY "Content-Type: text/plain\r\n", "{}");
    HAS(x, "HTTP/1.1 204");
    CHECK_STR(toy.last, "{}");
    ask(x, "POST", "/v1/sandboxes", "Content-Type: text/plain\r\n", "{}");
    HAS(x, "HTTP/1.1 400");
    fx_free(x);
}

TEST(dialect, serves_a_port_of_sandboxes)
{
    struct fx *x = toy_new();
    ask(x, "GET", "/", "Host: 4444-" ID ".preview.example\r\n", NULL);
    HAS(x, "HTTP/1.1 401");
    HAS(x, "toy says unauthenticated");
    ask(x, "GET", "/", "Host: 4444-" ID ".preview.example\r\nX-Toy-Token: right\r\n", NULL);
    HAS(x, "toy port\n");
    ask(x, "GET", "/fails", "Host: 4444-" ID ".preview.example\r\nX-Toy-Token: right\r\n", NULL);
    HAS(x, "toy says conflict");
    kept_set(&x->core.sb.kept.preview_token,
             "secret"); /* and its header takes tokens of previews */
    ask(x, "GET", "/", "Host: 3000-" ID ".preview.example\r\n", NULL);
    HAS(x, "HTTP/1.1 403");
    HAS(x, "X-Toy-Preview");
    fx_free(x);
}

TEST(dialect, leaves_the_others_alone)
{
    struct fx *x = toy_new();
    ask(x, "GET", "/v1/sandboxes/" ID, "", NULL);
    HAS(x, "\"id\":\"" ID "\"");
    ask(x, "GET", "/v1/sandboxes/nobody", "", NULL);
    HAS(x, "{\"error\":{\"code\":\"not_found\"");
    ask(x, "GET", "/sandboxes/" ID, "", NULL);
    HAS(x, "\"sandboxID\":\"" ID "\"");
    ask(x, "GET", "/sandboxes/nobody", "", NULL);
    HAS(x, "{\"code\":404,\"message\":\"Sandbox \\\"nobody\\\" doesn't exist");
    ask(x, "OPTIONS", "/sandboxes",
        "Origin: https://a.example\r\nAccess-Control-Request-Method: GET\r\n", NULL);
    HAS(x, "Access-Control-Allow-Origin: *");
    ask(x, "PATCH", "/sandboxes", "", NULL); /* 405 in its own form */
    HAS(x, "{\"code\":405,");
    HAS(x, "Allow: ");
    fx_free(x);
}

TEST(table, is_in_order)
{
    CHECK(ndialects >= 3 && ndialects < sizeof table / sizeof *table);
    for (size_t i = 0; i < ndialects; i++) {
        CHECK(dialects[i]->name && dialects[i]->fail);
        CHECK_INT(!dialects[i]->claims,
                  i == ndialects - 1); /* the last, and no other, takes what is left */
    }
    CHECK(strlen(api_key_prefix()) + 41 <= AUTH_PLAIN);
}

TEST_MAIN
