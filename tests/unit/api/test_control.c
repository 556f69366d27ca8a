/* The gate in front of real connections; sandboxes, keys, events and the daemon's own endpoints over a fake core. */
#include "fake.h"
#include "api/ndjson.h"

/* ---- the gate ---- */
static const char *tcp(struct fx *x, const char *request)
{
    fx_open_tcp(x);
    fx_sendz(x, request);
    fx_until(x, "\r\n\r\n");
    return x->in.p;
}
TEST(gate, tcp_needs_a_key)
{
    struct fx *x = fx_new();
    tcp(x, "GET /v1/sandboxes HTTP/1.1\r\nHost: localhost\r\n\r\n");
    HAS(x, "HTTP/1.1 401");
    HAS(x, "\"code\":\"unauthenticated\"");
    HAS(x, "\"reason\":\"api_key\"");
    HAS(x, "POST /v1/keys");
    HAS(x, "\"request_id\":\"r");
    HAS(x, "WWW-Authenticate: Bearer");
    tcp(x, "GET /v1/sandboxes HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer e2b_wrong\r\n\r\n");
    HAS(x, "HTTP/1.1 401");
    tcp(x, "GET /v1/sandboxes HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer " KEY "\r\n\r\n");
    HAS(x, "HTTP/1.1 200");
    tcp(x, "GET /v1/sandboxes HTTP/1.1\r\nHost: localhost\r\nX-API-Key: " KEY "\r\n\r\n");
    HAS(x, "HTTP/1.1 200");
    tcp(x, "GET /nowhere HTTP/1.1\r\nHost: localhost\r\n\r\n");
    HAS(x, "HTTP/1.1 401"); /* what exists is not told to strangers */
    tcp(x, "GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n");
    HAS(x, "HTTP/1.1 200");
    HAS(x, "\"status\":\"ok\"");
    fx_free(x);
}
TEST(gate, rebound_names_and_foreign_pages_are_refused)
{
    struct fx *x = fx_new();
    tcp(x, "GET /healthz HTTP/1.1\r\nHost: evil.example\r\n\r\n");
    HAS(x, "HTTP/1.1 403");
    HAS(x, "HUTCH_HOSTS");
    tcp(x, "GET /healthz HTTP/1.1\r\nHost: two.example:4882\r\n\r\n");
    HAS(x, "HTTP/1.1 200");
    tcp(x, "GET /healthz HTTP/1.1\r\nHost: localhost\r\nOrigin: https://evil.example\r\n\r\n");
    HAS(x, "HTTP/1.1 403");
    tcp(x, "GET /healthz HTTP/1.1\r\nHost: localhost\r\nOrigin: http://localhost:3000\r\n\r\n");
    HAS(x, "HTTP/1.1 200");
    tcp(x, "POST /v1/keys HTTP/1.1\r\nHost: localhost\r\nX-API-Key: " KEY "\r\nSec-Fetch-Site: cross-site\r\nContent-Length: 0\r\n\r\n");
    HAS(x, "HTTP/1.1 403");
    HAS(x, "pages from other sites");
    fx_free(x);
}
TEST(gate, shutdown_is_for_the_socket)
{
    struct fx *x = fx_new();
    tcp(x, "POST /v1/shutdown HTTP/1.1\r\nHost: localhost\r\nX-API-Key: " KEY "\r\nContent-Length: 0\r\n\r\n");
    HAS(x, "HTTP/1.1 403");
    CHECK_INT(F.down, 0);
    fx_ask(x, "POST", "/v1/shutdown", "{\"keep\":true}");
    HAS(x, "HTTP/1.1 202");
    CHECK_INT(F.down, 1);
    CHECK_INT(F.keep, 1);
    fx_free(x);
}
TEST(route, misses_are_typed)
{
    struct fx *x = fx_new();
    fx_ask(x, "GET", "/nowhere", NULL);
    HAS(x, "HTTP/1.1 404");
    HAS(x, "\"code\":\"not_found\"");
    HAS(x, "openapi.json");
    fx_ask(x, "PUT", "/v1/sandboxes", "");
    HAS(x, "HTTP/1.1 405");
    HAS(x, "Allow: ");
    HAS(x, "\"code\":\"invalid\"");
    fx_ask(x, "GET", "/v1/sandboxes/nope", NULL);
    HAS(x, "HTTP/1.1 404");
    HAS(x, "\"reason\":\"unknown_sandbox\"");
    HAS(x, "GET /v1/sandboxes lists");
    fx_ask(x, "GET", "/v1/sandboxes/UPPER", NULL);
    HAS(x, "HTTP/1.1 404");
    fx_free(x);
}
TEST(route, large_bodies_are_refused_before_they_are_read)
{
    struct fx *x = fx_new();
    fx_open(x);
    fx_sendz(x, "POST /v1/sandboxes HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1048577\r\n\r\n");
    fx_until(x, "too_large");
    HAS(x, "HTTP/1.1 413");
    HAS(x, "\"request_id\"");
    fx_free(x);
}

/* ---- sandboxes ---- */
TEST(create, answers_with_the_sandbox)
{
    struct fx *x = fx_new();
    fx_begin(x, "POST", "/v1/sandboxes", "{\"name\":\"box\",\"cpu\":0.5,\"memory_mib\":256,\"timeout_s\":60,\"metadata\":{\"a\":\"b\"},\"isolation\":\"container\",\"network\":{\"mode\":\"none\"},\"on_timeout\":\"kill\"}");
    CHECK(F.create.cb != NULL);
    CHECK_STR(F.create.name.p, "box");
    CHECK_STR(F.create.metadata.p, "b");
    CHECK_INT(F.create.spec.cpu_millis, 500);
    CHECK_INT(F.create.spec.memory_mib, 256);
    CHECK_INT(F.create.spec.timeout_s, 60);
    CHECK_STR(F.create.spec.tier->name, "container");
    CHECK_INT(F.create.spec.disk_mib, 0);
    F.create.cb(F.create.arg, &x->core.sb, NULL);
    fx_until(x, "\"end\":null}");
    HAS(x, "HTTP/1.1 201");
    HAS(x, "{\"id\":\"" ID "\",\"name\":null,\"template\":\"base\"");
    HAS(x, "\"state\":\"running\",\"isolation\":{\"tier\":\"vm\",\"boundary\":\"own kernel\",\"accel\":\"tcg\"},\"cpu\":1,\"memory_mib\":512");
    HAS(x, "\"created_at\":\"2023-11-14T22:13:20.000Z\"");
    HAS(x, "\"network\":{\"mode\":\"none\"},\"volumes\":[],\"snapshot\":null,\"box\":null,\"generation\":1,\"kernel\":null,\"start\":{\"path\":\"pool\",\"ms\":2.1},\"end\":null}");
    fx_free(x);
}
TEST(create, an_empty_body_means_defaults)
{
    struct fx *x = fx_new();
    fx_begin(x, "POST", "/v1/sandboxes", NULL);
    CHECK(F.create.cb != NULL);
    CHECK(!F.create.spec.template && !F.create.spec.name && !F.create.spec.tier);
    F.create.cb(F.create.arg, &x->core.sb, NULL);
    fx_until(x, "HTTP/1.1 201");
    fx_free(x);
}
TEST(create, refuses_what_it_does_not_know)
{
    static const struct {
        const char *body, *status, *says;
    } bad[] = {
        {"{\"memory\":1}", "400", "memory"},
        {"{\"memory_mib\":64}", "400", "memory_mib: must be between 128 and 65536"},
        {"{\"cpu\":0}", "400", "cpu: must be between 0.1 and 64"},
        {"{\"cpu\":65}", "400", "cpu"},
        {"{\"timeout_s\":0}", "400", "timeout_s: must be between 1 and 86400"},
        {"{\"timeout_s\":86401}", "400", "timeout_s"},
        {"{\"name\":\"Box\"}", "400", "name: must match"},
        {"{\"name\":\"\"}", "400", "name: must match"},
        {"{\"isolation\":\"chroot\"}", "400",
         "isolation: must be auto, vm, gvisor, container or isolate"},
        {"{\"on_timeout\":\"sleep\"}", "400", "kill or pause"},
        {"{\"on_timeout\":\"explode\"}", "400", "on_timeout"},
        {"{\"network\":{\"mode\":\"allow\"}}", "400", "network.allow"},
        {"{\"network\":{\"mode\":\"none\",\"x\":1}}", "400", "network.x"},
        {"{\"network\":\"none\"}", "400", "network"},
        {"{\"env\":{\"9\":\"x\"}}", "400", "variable name"},
        {"{\"metadata\":{\"\":\"x\"}}", "400", "metadata"},
        {"{\"template\":\"../x\"}", "400", "template"},
        {"{\"disk_mib\":0}", "400", "disk_mib"},
        {"{\"disk_mib\":1048577}", "400", "disk_mib"},
        {"nonsense", "400", "invalid"},
    };
    struct fx *x = fx_new();
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        char status[16];
        snprintf(status, sizeof status, "HTTP/1.1 %s", bad[i].status);
        fx_ask(x, "POST", "/v1/sandboxes", bad[i].body);
        HAS(x, status);
        HAS(x, bad[i].says);
        CHECK(!F.create.cb);
    }
    fx_free(x);
}
TEST(create, refusals_of_core_keep_their_type)
{
    struct fx *x = fx_new();
    struct err e;
    err_set(&F.refuse, E_QUOTA, "at most 3 sandboxes");
    fx_ask(x, "POST", "/v1/sandboxes", "{}");
    HAS(x, "HTTP/1.1 429");
    HAS(x, "at most 3 sandboxes");
    fx_begin(x, "POST", "/v1/sandboxes", "{}");
    err_set(&e, E_NOT_FOUND, "template 'x' does not exist");
    F.create.cb(F.create.arg, NULL, &e);
    fx_until(x, "GET /v1/templates lists");
    HAS(x, "HTTP/1.1 404");
    fx_free(x);
}
TEST(create, a_client_that_left_leaves_no_sandbox)
{
    struct fx *x = fx_new();
    fx_begin(x, "POST", "/v1/sandboxes", "{}");
    CHECK(F.create.cb != NULL);
    fx_close(x);
    F.create.cb(F.create.arg, &x->core.sb, NULL);
    CHECK_INT(F.sandbox_kills, 1);
    fx_free(x);
}
TEST(sandboxes, list_get_patch_timeout_delete)
{
    struct fx *x = fx_new();
    fx_ask(x, "GET", "/v1/sandboxes?state=running,failed&limit=1&meta.a=b", NULL);
    HAS(x, "HTTP/1.1 200");
    HAS(x, "\"next\":\"1700000000000000000\"");
    fx_ask(x, "GET", "/v1/sandboxes?state=asleep", NULL);
    HAS(x, "HTTP/1.1 400");
    fx_ask(x, "GET", "/v1/sandboxes?limit=0", NULL);
    HAS(x, "limit: must be between 1 and 1000");
    err_set(&F.refuse, E_INVALID, "cursor: not one that this list returned");
    fx_ask(x, "GET", "/v1/sandboxes?cursor=x", NULL);
    HAS(x, "HTTP/1.1 400");
    fx_ask(x, "GET", "/v1/sandboxes/box", NULL);
    HAS(x, "HTTP/1.1 200");
    fx_ask(x, "HEAD", "/v1/sandboxes/box", NULL);
    HAS(x, "HTTP/1.1 200");
    fx_ask(x, "PATCH", "/v1/sandboxes/box", "{\"timeout_s\":77,\"name\":null}");
    HAS(x, "\"timeout_s\":77");
    fx_ask(x, "PATCH", "/v1/sandboxes/box", "{\"name\":\"taken\",\"timeout_s\":88}");
    HAS(x, "HTTP/1.1 409");
    CHECK_INT(x->core.sb.timeout_s, 77);
    fx_ask(x, "PATCH", "/v1/sandboxes/box", "{\"state\":\"gone\"}");
    HAS(x, "HTTP/1.1 400");
    fx_ask(x, "POST", "/v1/sandboxes/box/timeout", "{\"timeout_s\":99}");
    HAS(x, "\"timeout_s\":99");
    fx_ask(x, "POST", "/v1/sandboxes/box/timeout", "{}");
    HAS(x, "timeout_s: missing");
    fx_begin(x, "DELETE", "/v1/sandboxes/box", NULL);
    CHECK_INT(F.sandbox_kills, 1);
    F.kill.cb(F.kill.arg, &x->core.sb, NULL);
    fx_until(x, "HTTP/1.1 204");
    x->core.sb.state = SB_GONE;
    fx_ask(x, "DELETE", "/v1/sandboxes/box", NULL);
    HAS(x, "HTTP/1.1 404");
    fx_free(x);
}

/* ---- keys, templates by name, the daemon ---- */
TEST(sandboxes, pause_and_resume)
{
    struct fx *x = fx_new();
    fx_begin(x, "POST", "/v1/sandboxes/" ID "/pause", "{\"memory\":false}");
    fx_turn(x, 5);
    CHECK(F.kill.cb && F.pause.files_only && !F.pause.standby);
    x->core.sb.state = SB_PAUSED;
    x->core.sb.life = (struct life){.paused = PAUSE_DISK, .memory = true, .bytes = 77};
    F.kill.cb(F.kill.arg, &x->core.sb, NULL);
    fx_until(x, "\r\n\r\n");
    HAS(x, "HTTP/1.1 200");
    HAS(x, "\"state\":\"paused\"");
    HAS(x, "\"paused\":{\"kind\":\"disk\",\"memory\":true,\"at\":null,\"bytes\":77,\"reason\":\"call\"}");
    F.kill.cb = NULL;
    fx_ask(x, "POST", "/v1/sandboxes/" ID "/pause", NULL); /* again: as asked already */
    HAS(x, "HTTP/1.1 200");
    CHECK(!F.kill.cb);
    fx_ask(x, "POST", "/v1/sandboxes/" ID "/pause", "{\"deep\":true}");
    HAS(x, "HTTP/1.1 400");
    fx_begin(x, "POST", "/v1/sandboxes/" ID "/resume", "{\"timeout_s\":9,\"memory\":false}");
    fx_turn(x, 5);
    CHECK(F.kill.cb && F.resume.cold);
    CHECK_INT(F.resume.timeout_s, 9);
    struct err e;
    err_set(&e, E_CONFLICT, "its saved memory is damaged");
    F.kill.cb(F.kill.arg, NULL, &e);
    fx_until(x, "damaged");
    HAS(x, "HTTP/1.1 409");
    fx_free(x);
}

TEST(sandboxes, calls_for_a_paused_one_wait_until_it_is_awake)
{
    struct fx *x = fx_new();
    x->core.sb.state = SB_PAUSED;
    fx_begin(x, "GET", "/v1/sandboxes/" ID "/processes", NULL);
    fx_turn(x, 5);
    CHECK_INT(F.wakes, 1);
    CHECK(!F.list_cb);
    x->core.sb.state = SB_RUNNING;
    F.kill.cb(F.kill.arg, &x->core.sb, NULL);
    CHECK(F.list_cb);
    F.list_cb(F.cb_arg, NULL, NULL, 0);
    fx_until(x, "processes");
    HAS(x, "HTTP/1.1 200");
    x->core.sb.state = SB_PAUSED;
    fx_begin(x, "GET", "/v1/sandboxes/" ID "/processes", NULL);
    fx_turn(x, 5);
    struct err e;
    err_set(&e, E_CONFLICT, "sandbox is paused");
    F.kill.cb(F.kill.arg, NULL, &e);
    fx_until(x, "is paused");
    HAS(x, "HTTP/1.1 409");
    fx_ask(x, "GET", "/v1/sandboxes/" ID, NULL); /* looking wakes nobody */
    CHECK_INT(F.wakes, 2);
    /* a client that leaves meanwhile is forgotten */
    fx_begin(x, "GET", "/v1/sandboxes/" ID "/processes", NULL);
    fx_turn(x, 5);
    fx_close(x);
    fx_turn(x, 5);
    F.kill.cb(F.kill.arg, &x->core.sb, NULL);
    fx_free(x);
}

TEST(keys, are_made_listed_and_revoked)
{
    struct fx *x = fx_new();
    fx_ask(x, "POST", "/v1/keys", "{\"name\":\"ci\"}");
    HAS(x, "HTTP/1.1 201");
    HAS(x,
        "{\"id\":\"k00000000000000000001\",\"name\":\"ci\",\"tenant\":\"owner\",\"role\":\"admin\",\"scope\":null,\"expires_at\":null,\"key\":\"" KEY
        "\"}");
    CHECK_INT(fake_key_spec.role,
              ROLE_MEMBER); /* what nobody asked for is the least that is of use */
    CHECK_STR(fake_key_spec.tenant, "ci");
    fx_ask(x, "POST", "/v1/keys", "{}");
    HAS(x, "HTTP/1.1 400");
    fx_ask(x, "GET", "/v1/keys", NULL);
    HAS(x, "\"prefix\":\"e2b_01234567\",\"created_at\":\"1970-01-01T00:00:01.000Z\",\"last_used_at\":null");
    CHECK(!strstr(x->in.p, KEY));
    fx_ask(x, "DELETE", "/v1/keys/k00000000000000000001", NULL);
    HAS(x, "HTTP/1.1 204");
    fx_ask(x, "DELETE", "/v1/keys/k00000000000000000002", NULL);
    HAS(x, "HTTP/1.1 404");
    fx_ask(x, "DELETE", "/v1/keys/x", NULL);
    HAS(x, "HTTP/1.1 404");
    fx_free(x);
}
TEST(admin, doctor_metrics_openapi)
{
    struct fx *x = fx_new();
    fx_begin(x, "GET", "/v1/doctor", NULL);
    fx_until(x, "{\"checks\":[{\"name\":\"kvm\",\"status\":\"warn\",\"found\":\"no\",\"lost\":\"speed\",\"fix\":\"buy\"},"
                "{\"name\":\"preset pip\",\"status\":\"ok\",\"found\":\"index.example.org (built in)\",\"lost\":\"\",\"fix\":\"\"}]}");
    fx_ask(x, "GET", "/metrics", NULL);
    HAS(x, "hutch_sandboxes{state=\"running\"} 1\n");
    HAS(x, "hutch_creates_total 7\n");
    HAS(x, "process_resident_memory_bytes ");
    HAS(x, "process_open_fds ");
    fx_begin(x, "GET", "/v1/openapi.json", NULL);
    fx_until(x, "securitySchemes");
    HAS(x, "\"/v1/sandboxes/{id}/exec\"");
    fx_begin(x, "GET", "/v1/sandboxes/box/metrics", NULL);
    struct sandbox_metrics m = {.cpu_ns = 5, .cpu_count = 1, .mem_total = 512};
    F.metrics_cb(F.cb_arg, NULL, &m);
    fx_until(x, "\"cpu_ns\":5,\"cpu_count\":1,\"memory_used\":0");
    fx_begin(x, "GET", "/v1/sandboxes/box/console", NULL);
    F.console_cb(F.cb_arg, str_of("one\ntwo \\x1b[2J\n"), NULL);
    fx_until(x, "{\"lines\":[\"one\",\"two \\\\x1b[2J\"]}");
    fx_begin(x, "GET", "/v1/sandboxes/box/console", NULL);
    F.console_cb(F.cb_arg, (struct str){0}, NULL);
    fx_until(x, "{\"lines\":[]}");
    fx_free(x);
}
TEST(admin, doctor_survives_a_client_that_left)
{
    struct fx *x = fx_new();
    fx_begin(x, "GET", "/v1/doctor", NULL);
    fx_close(x);
    usleep(20000);
    fx_turn(x, 10);
    fx_free(x);
}

/* ---- lines ---- */
static struct ndjson quiet_lines;
static void quiet_handler(struct http_stream *s, void *arg)
{
    (void)arg;
    nd_start(&quiet_lines, s);
    CHECK(quiet_lines.quiet_ns == 15 * NS_PER_S);
    quiet_lines.quiet_ns = 2 * NS_PER_MS;
    jw_kv_u64(nd_event(&quiet_lines, "hello"), "n", 1);
    nd_send(&quiet_lines);
}
TEST(lines, silence_is_kept_alive)
{
    static const struct api_route extra[] = {
        {.method = "GET", .pattern = "/quiet", .fn = quiet_handler, .flags = ROUTE_OPEN}};
    static const struct dialect quiet = {
        .name = "quiet", .routes = extra, .nroutes = 1, .fail = problem_about};
    const struct dialect *const only[] = {&quiet};
    struct fx *x = fx_new_with(only, 1);
    fx_begin(x, "GET", "/quiet", NULL);
    fx_until(x, "{\"event\":\"hello\",\"n\":1}\n");
    fx_until(x, "{\"event\":\"keepalive\"}\n");
    x->in.n = 0;
    fx_until(x, "{\"event\":\"keepalive\"}\n");
    nd_end(&quiet_lines);
    nd_fini(&quiet_lines);
    fx_until(x, "0\r\n\r\n");
    fx_free(x);
}

/* ---- events ---- */
TEST(events, list_and_logs)
{
    struct fx *x = fx_new();
    event_emit(&x->core, "sandbox.running", NULL, ID, "{\"tier\":\"vm\"}");
    event_emit(&x->core, "host.started", NULL, NULL, "{}");
    event_emit(&x->core, "sandbox.failed", NULL, ID, "{\"message\":\"it broke\"}");
    fx_ask(x, "GET", "/v1/events?follow=0&since=1", NULL);
    HAS(x, "{\"events\":[{\"seq\":2,\"at\":\"1970-01-01T00:00:01.000Z\",\"type\":\"host.started\",\"sandbox\":null,\"data\":{}},{\"seq\":3");
    fx_ask(x, "GET", "/v1/events?follow=0&sandbox=box", NULL);
    HAS(x, "\"seq\":1");
    CHECK(!strstr(x->in.p, "host.started"));
    fx_ask(x, "GET", "/v1/events?follow=0&sandbox=nope", NULL);
    HAS(x, "HTTP/1.1 404");
    fx_ask(x, "GET", "/v1/sandboxes/box/logs", NULL);
    HAS(x, "\"level\":\"info\",\"message\":\"sandbox.running {\\\"tier\\\":\\\"vm\\\"}\"}");
    HAS(x, "\"level\":\"error\",\"message\":\"sandbox.failed: it broke\"}");
    fx_ask(x, "GET", "/v1/sandboxes/box/logs?limit=1", NULL);
    CHECK(!strstr(x->in.p, "sandbox.running"));
    fx_free(x);
}
static size_t followers(const struct fx *x)
{
    size_t n = 0;
    for (struct list *l = x->core.followers.next; l != &x->core.followers; l = l->next)
        n++;
    return n;
}
TEST(events, follow_from_a_point_then_live)
{
    struct fx *x = fx_new();
    size_t before = followers(x); /* dialects that follow for as long as they are there */
    event_emit(&x->core, "a.one", NULL, NULL, "{}");
    event_emit(&x->core, "a.two", NULL, NULL, "{}");
    fx_begin(x, "GET", "/v1/events?since=1", NULL);
    fx_until(x, "a.two");
    HAS(x, "text/event-stream");
    HAS(x, "id: 2\nevent: a.two\ndata: {\"seq\":2,");
    CHECK(!strstr(x->in.p, "a.one"));
    event_emit(&x->core, "a.three", NULL, NULL, "{}");
    fx_until(x, "id: 3\nevent: a.three");
    CHECK_INT(followers(x), before + 1);
    fx_close(x);
    CHECK_INT(followers(x), before);
    fx_begin(x, "GET", "/v1/events", NULL);
    fx_until(x, "\r\n\r\n");
    event_emit(&x->core, "a.four", NULL, NULL, "{}");
    fx_until(x, "a.four");
    CHECK(!strstr(x->in.p, "a.three"));
    fx_free(x);
}
TEST(events, a_slow_follower_misses_nothing)
{
    struct fx *x = fx_new();
    static char big[8192];
    memset(big, 'x', sizeof big - 1);
    memcpy(big, "{\"a\":\"", 6);
    memcpy(big + sizeof big - 3, "\"}", 3);
    fx_begin(x, "GET", "/v1/events", NULL);
    fx_until(x, "\r\n\r\n");
    for (int i = 0; i < 500; i++) {
        event_emit(&x->core, "a.big", NULL, NULL, big);
        if (i % 50 == 0)
            fx_turn(x, 1);
    }
    fx_until(x, "id: 500\n");
    const char *at = x->in.p;
    for (int i = 1; i <= 500; i++) {
        char id[24];
        snprintf(id, sizeof id, "id: %d\n", i);
        at = strstr(at, id);
        CHECK(at != NULL);
    }
    fx_free(x);
}
TEST_MAIN
