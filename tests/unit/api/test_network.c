/* Policy, egress log, previews and secrets over HTTP. */
#include "fake.h"

TEST(network, read_and_replaced)
{
    struct fx *x = fx_new();
    fx_ask(x, "GET", "/v1/sandboxes/box/network", NULL);
    HAS(x, "HTTP/1.1 200");
    HAS(x, "{\"mode\":\"none\"}");
    fx_begin(x, "PUT", "/v1/sandboxes/box/network", "{\"mode\":\"allow\",\"allow\":[\"example.org\"]}");
    fx_turn(x, 5);
    CHECK(F.network.cb != NULL);
    CHECK_STR(F.network.text.p, "{\"mode\":\"allow\",\"allow\":[\"example.org\"]}");
    F.network.cb(F.network.arg, NULL, 3);
    fx_until(x, "\"cut\"");
    HAS(x, "{\"network\":{\"mode\":\"none\"},\"cut\":3}");
    fx_free(x);
}

TEST(network, refusals)
{
    static const struct { const char *body, *status, *text; } bad[] = {
        {"{\"mode\":\"allow\"}", "400", "network.allow"}, {"{\"nope\":1}", "400", "nope"}, {"[]", "400", "error"}, {"{\"mode\":7}", "400", "mode"},
    };
    struct fx *x = fx_new();
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        fx_ask(x, "PUT", "/v1/sandboxes/box/network", bad[i].body);
        HAS(x, bad[i].status);
        HAS(x, bad[i].text);
    }
    err_set(&F.refuse, E_CONFLICT, "another change is under way");
    fx_ask(x, "PUT", "/v1/sandboxes/box/network", "{}");
    HAS(x, "HTTP/1.1 409");
    fx_begin(x, "PUT", "/v1/sandboxes/box/network", "{}");
    fx_turn(x, 5);
    struct err e;
    err_set(&e, E_UNAVAILABLE, "the gate is away");
    F.network.cb(F.network.arg, &e, 0);
    fx_until(x, "\r\n\r\n");
    HAS(x, "HTTP/1.1 503");
    HAS(x, "the gate is away");
    fx_free(x);
}

TEST(network, egress_pages)
{
    struct fx *x = fx_new();
    fx_begin(x, "GET", "/v1/sandboxes/box/egress?verdict=deny&limit=5&cursor=77&verify=1", NULL);
    fx_turn(x, 5);
    CHECK(F.egress.cb != NULL);
    CHECK_INT(F.egress.after, 77);
    CHECK_INT(F.egress.limit, 5);
    CHECK(F.egress.verify);
    CHECK_STR(F.egress.filter.p, "deny");
    struct egress_page p = {.n = 1, .next = 80, .verified = 80};
    buf_puts(&p.lines, "{\"seq\":80}");
    F.egress.cb(F.egress.arg, NULL, &p);
    fx_until(x, "verified");
    HAS(x, "{\"records\":[{\"seq\":80}],\"next\":\"80\",\"verified\":80}");
    buf_free(&p.lines);
    fx_ask(x, "GET", "/v1/sandboxes/box/egress?cursor=abc", NULL);
    HAS(x, "HTTP/1.1 400");
    fx_ask(x, "GET", "/v1/sandboxes/nosuch/egress", NULL);
    HAS(x, "HTTP/1.1 404");
    fx_free(x);
}

TEST(network, preview_address)
{
    struct fx *x = fx_new();
    snprintf(x->core.cfg.listen, sizeof x->core.cfg.listen, "127.0.0.1:4882");
    fx_ask(x, "GET", "/v1/sandboxes/box/url?port=8080", NULL);
    HAS(x, "{\"url\":\"http://8080-" ID ".localhost:4882/\",\"token\":null,\"header\":null}");
    fx_ask(x, "GET", "/v1/sandboxes/box/url", NULL);
    HAS(x, "HTTP/1.1 400");
    fx_ask(x, "GET", "/v1/sandboxes/box/url?port=70000", NULL);
    HAS(x, "HTTP/1.1 400");
    fx_free(x);
}

TEST(secrets, come_in_and_never_out)
{
    struct fx *x = fx_new();
    /* another tenant's: by its id, since a name would be the administrator's own */
    fx_begin(x, "PUT", "/v1/secrets/s00000000000000000009",
             "{\"value\":\"very-secret\",\"calls_max\":10}");
    fx_turn(x, 5);
    fake_answer(NULL);
    fx_until(x, "\"bytes\"");
    HAS(x, "HTTP/1.1 200");
    CHECK(!strstr(x->in.p, "very-secret"));
    fx_ask(x, "GET", "/v1/secrets", NULL);
    HAS(x, "{\"secrets\":[{\"name\":\"token\"");
    HAS(x, "\"calls\":3");
    fx_ask(x, "DELETE", "/v1/secrets/token", NULL);
    HAS(x, "HTTP/1.1 204");
    fx_ask(x, "DELETE", "/v1/secrets/other", NULL);
    HAS(x, "HTTP/1.1 404");
    fx_ask(x, "PUT", "/v1/secrets/token", "{}");
    HAS(x, "HTTP/1.1 400");
    fx_free(x);
}
TEST_MAIN
