/* The pure parts of the E2B dialect: references, metadata, hosts, times, steps; and its routes over a fake core. */
#include "api/e2b/control/catalogue.h"
#include "api/e2b/control/sandboxes.h"
#include "api/e2b/e2b.h"
#include "api/preview/preview.h"
#include "crypto/digest.h"
#include "fake.h"

/* ---- references ---- */
TEST(ref, name_tag_namespace)
{
    struct e2b_ref r;
    struct err e;
    CHECK_INT(e2b_ref_parse("base", &r, &e), 0);
    CHECK_STR(r.name, "base");
    CHECK_STR(r.tag, "");
    CHECK_INT(e2b_ref_parse("My_App:V1.2", &r, &e), 0);
    CHECK_STR(r.name, "my_app");
    CHECK_STR(r.tag, "v1.2");
    CHECK_INT(e2b_ref_parse("hutch/app:x", &r, &e), 0);
    CHECK_STR(r.name, "app");
    CHECK_STR(r.tag, "x");
}
TEST(ref, refusals)
{
    static const char *const bad[] = {"", ":x", "x:", "a b", "a:b:c", "a/b/c", "/a", "a/", "é", "a.b"};
    struct e2b_ref r;
    struct err e;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        e.code = E_OK;
        CHECK_INT(e2b_ref_parse(bad[i], &r, &e), -1);
        CHECK_INT(e.code, E_INVALID);
        CHECK(!strncmp(e.msg, "Invalid template reference: ", 28));
    }
    CHECK_INT(e2b_ref_parse("other/app", &r, &e), -1);
    CHECK_INT(e.code, E_NOT_FOUND);
}
TEST(ref, too_long_is_malformed)
{
    char name[400];
    struct e2b_ref r;
    struct err e;
    memset(name, 'a', sizeof name);
    name[399] = 0;
    CHECK_INT(e2b_ref_parse(name, &r, &e), -1);
}
TEST(ref, tags)
{
    char tag[E2B_NAME_MAX];
    CHECK(e2b_tag_read("v1.2-RC_3", tag) && !strcmp(tag, "v1.2-rc_3"));
    CHECK(!e2b_tag_read("", tag) && !e2b_tag_read(":x", tag) && !e2b_tag_read("x:", tag) && !e2b_tag_read("a b", tag));
}

/* ---- metadata ---- */
TEST(metadata, is_decoded_twice)
{
    struct kv m = {0};
    /* the query holds metadata=a%3Db%252520c%26k%25253D1%3Dv; what arrives here is decoded once */
    CHECK_INT(e2b_meta_parse(S("a=b%2520c&k%253D1=v"), &m), 0);
    CHECK_STR(kv_get(&m, "a"), "b c");
    CHECK_STR(kv_get(&m, "k=1"), "v");
    CHECK_INT(m.n, 2);
    kv_free(&m);
}
TEST(metadata, plus_is_a_space_only_the_first_time)
{
    struct kv m = {0};
    CHECK_INT(e2b_meta_parse(S("a=b+c&d=%2B&e"), &m), 0);
    CHECK_STR(kv_get(&m, "a"), "b c");
    CHECK_STR(kv_get(&m, "d"), "+");
    CHECK_STR(kv_get(&m, "e"), "");
    kv_free(&m);
}
TEST(metadata, broken_escapes_are_refused)
{
    struct kv m = {0};
    CHECK_INT(e2b_meta_parse(S("a=%zz"), &m), -1);
    CHECK_INT(e2b_meta_parse(S("a=%25zz"), &m), -1);
    CHECK_INT(e2b_meta_parse(S("a=%2500"), &m), -1);
    kv_free(&m);
}

/* ---- hosts ---- */
TEST(host, trusted)
{
    CHECK(e2b_host_trusted(S("localhost")) && e2b_host_trusted(S("LOCALHOST:80")) && e2b_host_trusted(S("10.0.0.1:5000")));
    CHECK(e2b_host_trusted(S("[::1]:80")) && e2b_host_trusted(S("sandbox.example.org")));
    CHECK(!e2b_host_trusted(S("example.org")) && !e2b_host_trusted(S("sandbox")) && !e2b_host_trusted(S("3000-iabc.x")) && !e2b_host_trusted(S("")));
    CHECK(!e2b_host_trusted(S("1.2.3.4.evil.example")));
}
TEST(host, cookies_are_the_hosts_own)
{
    static const char *const t[][2] = {
        {"a=b", "a=b"},
        {"a=b; Path=/; HttpOnly", "a=b; Path=/; HttpOnly"},
        {"a=b; Domain=example.org; Path=/", "a=b; Path=/"},
        {"a=b;domain=.example.org", "a=b"},
        {"a=b; DOMAIN = example.org ;Secure", "a=b;Secure"},
        {"a=b; domain; Domain=x; SameSite=Lax", "a=b; SameSite=Lax"},
        {"domain=b; Path=/", "domain=b; Path=/"}, /* that is its name */
        {"a=\"x; Domain=y\"", "a=\"x"},          /* as browsers read it */
        {"", ""},
    };
    for (size_t i = 0; i < sizeof t / sizeof *t; i++) {
        struct buf b = {0};
        preview_cookie_own(str_of(t[i][0]), &b);
        CHECK_STR(b.p ? b.p : "", t[i][1]);
        buf_free(&b);
    }
}
TEST(host, target)
{
    struct preview_target t;
    CHECK_INT(preview_host_parse(S("3000-iabc123.sbx.example.org:5000"), &t), PREVIEW_HOST_TARGET);
    CHECK_INT(t.port, 3000);
    CHECK_STR(t.id, "iabc123");
    CHECK_INT(preview_host_parse(S("3000-IABC.x"), &t), PREVIEW_HOST_TARGET);
    CHECK_STR(t.id, "iabc");
    CHECK_INT(preview_host_parse(S("3000-iabc-client.x"), &t), PREVIEW_HOST_TARGET);
    CHECK_STR(t.id, "iabc");
}
TEST(host, no_target)
{
    struct preview_target t;
    CHECK_INT(preview_host_parse(S("example.org"), &t), PREVIEW_HOST_PLAIN);
    CHECK_INT(preview_host_parse(S("my-host.example.org"), &t), PREVIEW_HOST_PLAIN);
    CHECK_INT(preview_host_parse(S("3000-iabc"), &t), PREVIEW_HOST_PLAIN);
    CHECK_INT(preview_host_parse(S(""), &t), PREVIEW_HOST_PLAIN);
    CHECK_INT(preview_host_parse(S("0-iabc.x"), &t), PREVIEW_HOST_BAD_PORT);
    CHECK_INT(preview_host_parse(S("65536-iabc.x"), &t), PREVIEW_HOST_BAD_PORT);
    CHECK_INT(preview_host_parse(S("3000-.x"), &t), PREVIEW_HOST_BAD_ID);
    CHECK_INT(preview_host_parse(S("3000-i_b.x"), &t), PREVIEW_HOST_BAD_ID);
}
TEST(path, of_the_dialect)
{
    CHECK(e2b_path(S("/sandboxes")) && e2b_path(S("/sandboxes/x/y")) && e2b_path(S("/v2/sandboxes")) && e2b_path(S("/templates/a%2Fb")));
    CHECK(!e2b_path(S("/v1/sandboxes")) && !e2b_path(S("/sandboxesx")) && !e2b_path(S("/")) && !e2b_path(S("/v1")) && !e2b_path(S("/files")));
}

/* ---- times ---- */
TEST(time, forms)
{
    int64_t t = e2b_time_parse("2026-01-02T03:04:05.678Z");
    CHECK_INT(t, clock_parse_rfc3339("2026-01-02T03:04:05.678Z"));
    CHECK_INT(e2b_time_parse("2026-01-02T03:04:05.678000+00:00"), t);
    CHECK_INT(e2b_time_parse("2026-01-02T05:04:05.678+02:00"), t);
    CHECK_INT(e2b_time_parse("2026-01-02T01:34:05.678-01:30"), t);
    CHECK_INT(e2b_time_parse("2026-01-02T03:04:05.678 00:00"), t);
    CHECK_INT(e2b_time_parse("2026-01-02T03:04:05Z"), t - 678 * NS_PER_MS);
    CHECK(e2b_time_parse("now") == INT64_MIN && e2b_time_parse("2026-01-02") == INT64_MIN && e2b_time_parse("2026-01-02T03:04:05") == INT64_MIN);
    CHECK(e2b_time_parse("2026-01-02T03:04:05Zx") == INT64_MIN && e2b_time_parse("") == INT64_MIN);
}

/* ---- build steps ---- */
static struct e2b_recipe steps(const char *json, int want)
{
    struct e2b_recipe r = {0};
    struct err e;
    auto_json j = json_parse_obj(json, strlen(json), &e);
    CHECK(j != NULL);
    CHECK_INT(e2b_steps(j, "tparent", NULL, NULL, &r, &e), want);
    return r;
}
TEST(steps, begin_as_user_at_home)
{
    struct e2b_recipe r = steps("{}", 0);
    CHECK_STR(r.text.p, "FROM tparent\nUSER 'user'\nWORKDIR '/home/user'\n");
    e2b_recipe_fini(&r);
}
TEST(steps, run_env_workdir_user)
{
    struct e2b_recipe r = steps("{\"steps\":[{\"type\":\"RUN\",\"args\":[\"a\\n\\\"b\\\"\"]},{\"type\":\"ENV\",\"args\":[\"A\",\"it's $X\"]},"
                                "{\"type\":\"WORKDIR\",\"args\":[\"/w d\"]},{\"type\":\"RUN\",\"args\":[\"x\",\"root\"]}],\"startCmd\":\"serve\",\"readyCmd\":\"ok\"}", 0);
    CHECK_STR(r.text.p + strlen("FROM tparent\nUSER 'user'\nWORKDIR '/home/user'\n"),
              "RUN [\"/bin/bash\",\"-l\",\"-c\",\"a\\n\\\"b\\\"\"]\n"
              "ENV A='it'\\''s $X'\n"
              "WORKDIR '/w d'\n"
              "USER 'root'\nRUN [\"/bin/bash\",\"-l\",\"-c\",\"x\"]\nUSER 'user'\n"
              "START [\"/bin/bash\",\"-l\",\"-c\",\"serve\"]\nREADY [\"/bin/bash\",\"-l\",\"-c\",\"ok\"]\n");
    e2b_recipe_fini(&r);
}
TEST(steps, copy_names_its_files)
{
    struct e2b_recipe r = steps("{\"steps\":[{\"type\":\"COPY\",\"args\":[\"*.txt\",\"/app/\",\"\",\"0644\"],"
                                "\"filesHash\":\"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\"}]}", 0);
    CHECK_INT(r.files.n, 1);
    CHECK(strstr(r.text.p, "chmod -R 0644") && strstr(r.text.p, "USER 'root'") && strstr(r.text.p, "*'.''t''x''t'"));
    e2b_recipe_fini(&r);
}
TEST(steps, refusals)
{
    static const char *const bad[] = {
        "{\"type\":\"RUN\",\"args\":[]}", "{\"type\":\"NOPE\",\"args\":[\"x\"]}", "{\"type\":\"USER\",\"args\":[\"-x\"]}",
        "{\"type\":\"USER\",\"args\":[\"a;b\"]}", "{\"type\":\"WORKDIR\",\"args\":[\"a\\nRUN evil\"]}", "{\"type\":\"ENV\",\"args\":[\"1A\",\"x\"]}",
        "{\"type\":\"ENV\",\"args\":[\"A\",\"x\\nRUN evil\"]}", "{\"type\":\"COPY\",\"args\":[\"a\",\"b\"]}", "{\"type\":\"COPY\",\"args\":[\"a\",\"b\"],\"filesHash\":\"../x\"}",
        "{\"type\":\"RUN\",\"args\":[\"x\",\"a b\"]}",
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        auto_buf j = {0};
        buf_printf(&j, "{\"steps\":[%s]}", bad[i]);
        struct e2b_recipe r = steps(j.p, -1);
        e2b_recipe_fini(&r);
    }
}
TEST(steps, errors_in_their_words)
{
    struct e2b_recipe r = steps("{\"steps\":[{\"type\":\"RUN\",\"args\":[\"make\"]},{\"type\":\"RUN\",\"args\":[\"x|y\",\"bob\"]}]}", 0);
    auto_buf m = {0};
    char step[12];
    e2b_build_message(&r.lines, "line 4: RUN failed with status 2: no rule", &m, step);
    CHECK_STR(m.p, "failed to run command 'make': exit status 2: no rule");
    CHECK_STR(step, "1");
    m.n = 0;
    e2b_build_message(&r.lines, "line 5: USER failed with status 1: id: no such user", &m, step);
    CHECK_STR(m.p, "failed to run command 'x|y': command failed: unauthenticated: invalid username: 'bob'");
    CHECK_STR(step, "2");
    m.n = 0;
    e2b_build_message(&r.lines, "the disk is full", &m, step);
    CHECK_STR(m.p, "the disk is full");
    CHECK_STR(step, "finalize");
    e2b_recipe_fini(&r);
}
TEST(images, to_templates)
{
    char out[64];
    CHECK_STR(e2b_image_template("e2bdev/base", out), "base");
    CHECK_STR(e2b_image_template("debian:12", out), "base");
    CHECK_STR(e2b_image_template("docker.io/library/debian:bookworm-slim", out), "base");
    CHECK_STR(e2b_image_template("python:3.11", out), "python-3-11");
    CHECK_STR(e2b_image_template("ghcr.io/Me/App", out), "ghcr-io-me-app");
}

/* ---- requests ---- */
TEST(api, errors_have_e2bs_form)
{
    struct fx *x = fx_new();
    fx_ask(x, "GET", "/sandboxes/inosuch", NULL);
    HAS(x, "HTTP/1.1 404");
    HAS(x, "{\"code\":404,\"message\":\"Sandbox \\\"inosuch\\\" doesn't exist or you don't have access to it\"}");
    fx_ask(x, "GET", "/v2/nowhere", NULL);
    HAS(x, "{\"code\":404,");
    fx_ask(x, "PATCH", "/sandboxes", NULL);
    HAS(x, "{\"code\":405,");
    fx_ask(x, "POST", "/sandboxes/" ID "/fork", "{\"count\":101}");
    HAS(x, "{\"code\":400,");
    fx_free(x);
}
TEST(api, snapshots_and_forks)
{
    struct fx *x = fx_new();
    struct fork_child child[2] = {{.id = ID}};
    err_set(&child[1].err, E_QUOTA, "too many");
    fx_begin(x, "POST", "/sandboxes/" ID "/fork", "{\"count\":2}");
    fx_turn(x, 5);
    CHECK(SN.fork.count == 2 && SN.fork.timeout_s == 300);
    CHECK(SN.forked);
    SN.forked(SN.arg, &fake_snapshot, child, 2, NULL);
    fx_until(x, "HTTP/1.1 201");
    HAS(x, "[{\"sandbox\":{\"sandboxID\":\"" ID "\"");
    HAS(x, "{\"error\":{\"code\":429,\"message\":\"too many\"}}]");
    fx_begin(x, "POST", "/sandboxes/" ID "/snapshots", "{\"name\":\"First:v1\"}");
    fx_turn(x, 5);
    CHECK(SN.cb);
    SN.cb(SN.arg, &fake_snapshot, NULL);
    fx_until(x, "HTTP/1.1 201");
    HAS(x, "{\"snapshotID\":\"hutch/first:default\",\"names\":[\"hutch/first\"]}");
    fx_ask(x, "POST", "/sandboxes/" ID "/snapshots", "{\"name\":\"a b\"}");
    HAS(x, "HTTP/1.1 400");
    fx_ask(x, "GET", "/snapshots?name=first&limit=1", NULL);
    HAS(x, "X-Next-Token: 1000000000");
    fx_ask(x, "GET", "/snapshots?name=other", NULL);
    HAS(x, "\r\n\r\n[]");
    fx_begin(x, "DELETE", "/templates/hutch%2Ffirst%3Adefault", NULL);
    fx_turn(x, 5);
    CHECK(SN.deleted);
    SN.deleted(SN.arg, NULL);
    fx_until(x, "HTTP/1.1 204");
    fx_free(x);
}
TEST(api, pause_connect_and_resume)
{
    struct fx *x = fx_new();
    fx_begin(x, "POST", "/sandboxes/" ID "/pause", "{\"memory\":false}");
    fx_turn(x, 5);
    CHECK(F.kill.cb && F.pause.files_only);
    x->core.sb.state = SB_PAUSED;
    x->core.sb.life = (struct life){.paused = PAUSE_DISK, .memory = true, .paused_ns = 1700000000000000000};
    F.kill.cb(F.kill.arg, &x->core.sb, NULL);
    fx_until(x, "\r\n\r\n");
    HAS(x, "HTTP/1.1 204");
    fx_ask(x, "POST", "/sandboxes/" ID "/pause", NULL);
    HAS(x, "HTTP/1.1 409");
    HAS(x, "{\"code\":409,");
    fx_ask(x, "GET", "/sandboxes/" ID, NULL);
    HAS(x, "\"state\":\"paused\"");
    HAS(x, "\"endAt\":\"2023-11-14T22:13:20.000Z\"");
    fx_ask(x, "POST", "/sandboxes/" ID "/timeout", "{\"timeout\":5}");
    fx_begin(x, "POST", "/v2/sandboxes/" ID "/connect", "{\"timeout\":70,\"memory\":false}");
    fx_turn(x, 5);
    CHECK_INT(F.resume.timeout_s, 70);
    CHECK(F.resume.cold);
    x->core.sb.state = SB_RUNNING;
    F.kill.cb(F.kill.arg, &x->core.sb, NULL);
    fx_until(x, "sandboxID");
    HAS(x, "HTTP/1.1 201");
    fx_ask(x, "POST", "/v2/sandboxes/" ID "/connect", "{}");
    HAS(x, "HTTP/1.1 200");
    fx_ask(x, "POST", "/sandboxes/" ID "/resume", "{\"timeout\":5}");
    HAS(x, "HTTP/1.1 409");
    fx_free(x);
}
TEST(api, traffic_wakes_who_asked_for_it)
{
    struct fx *x = fx_new();
    static const char health[] = "GET /health HTTP/1.1\r\nHost: localhost\r\nE2b-Sandbox-Id: " ID "\r\nE2b-Sandbox-Port: 49983\r\nX-Access-Token: tok\r\n\r\n";
    strcpy(x->core.sb.token, "tok");
    x->core.sb.state = SB_PAUSED;
    x->core.sb.life = (struct life){.paused = PAUSE_DISK, .memory = true};
    fx_open(x);
    fx_sendz(x, health);
    fx_until(x, "502");
    CHECK_INT(F.wakes, 0);
    x->core.sb.life.auto_resume = true;
    fx_open(x);
    fx_sendz(x, health);
    fx_turn(x, 5);
    CHECK_INT(F.wakes, 1);
    x->core.sb.state = SB_RUNNING;
    x->core.sb.timeout_s = 10;
    F.kill.cb(F.kill.arg, &x->core.sb, NULL);
    fx_until(x, "\r\n\r\n");
    HAS(x, "HTTP/1.1 204");
    CHECK_INT(x->core.sb.timeout_s, 300);
    x->core.sb.state = SB_PAUSED;
    x->core.sb.life.memory = false; /* that would be a reboot */
    fx_open(x);
    fx_sendz(x, health);
    fx_until(x, "502");
    CHECK_INT(F.wakes, 1);
    fx_free(x);
}
TEST(api, needs_a_key_and_takes_any_page)
{
    struct fx *x = fx_new();
    fx_open_tcp(x);
    fx_sendz(x, "GET /v2/sandboxes HTTP/1.1\r\nHost: localhost\r\nOrigin: https://x.example\r\n\r\n");
    fx_until(x, "\r\n\r\n");
    HAS(x, "HTTP/1.1 401");
    HAS(x, "Access-Control-Allow-Origin: *");
    fx_open_tcp(x);
    fx_sendz(x, "OPTIONS /v2/sandboxes HTTP/1.1\r\nHost: localhost\r\nOrigin: https://x.example\r\nAccess-Control-Request-Method: POST\r\n\r\n");
    fx_until(x, "\r\n\r\n");
    HAS(x, "HTTP/1.1 204");
    HAS(x, "Access-Control-Max-Age: 7200");
    fx_open_tcp(x);
    fx_sendz(x, "GET /v2/sandboxes HTTP/1.1\r\nHost: evil.example\r\nX-API-Key: " KEY "\r\n\r\n");
    fx_until(x, "\r\n\r\n");
    HAS(x, "HTTP/1.1 403");
    fx_free(x);
}
TEST(api, create_is_translated)
{
    struct fx *x = fx_new();
    fx_begin(x, "POST", "/v2/sandboxes", "{\"templateID\":\"base\",\"metadata\":{\"hutch.isolation\":\"container\"},\"unknown\":1}");
    fx_turn(x, 5);
    CHECK(F.create.cb != NULL);
    CHECK_STR(F.create.spec.tier->name, "container");
    CHECK_INT(F.create.spec.timeout_s, 300);
    F.create.cb(F.create.arg, &x->core.sb, NULL);
    fx_until(x, "\r\n\r\n");
    HAS(x, "HTTP/1.1 201");
    HAS(x, "\"sandboxID\":\"" ID "\"");
    HAS(x, "\"envdVersion\":\"0.6.13\"");
    HAS(x, "\"domain\":\"localhost:4882\""); /* over the socket: where it listens */
    fx_free(x);
}
TEST(api, the_domain_of_previews_is_never_somebody_elses)
{
    static const struct {
        const char *host, *domain, *want;
    } t[] = {
        {"localhost:4882", "", "localhost:4882"},
        {"127.0.0.1:4882", "", "localhost:4882"},
        {"[::1]:80", "", "localhost:80"},
        {"api.hutch.test", "", "hutch.test"},
        {"API.hutch.test:8443", "", "hutch.test:8443"},
        {"localhost", "box.test", "box.test"},
    };
    struct fx *x = fx_new();
    snprintf(x->core.cfg.hosts, sizeof x->core.cfg.hosts, "api.hutch.test");
    for (size_t i = 0; i < sizeof t / sizeof *t; i++) {
        auto_buf q = {0}, want = {0};
        snprintf(x->core.cfg.domain, sizeof x->core.cfg.domain, "%s", t[i].domain);
        buf_printf(&q, "GET /sandboxes/" ID " HTTP/1.1\r\nHost: %s\r\nX-API-Key: " KEY "\r\n\r\n",
                   t[i].host);
        buf_printf(&want, "\"domain\":\"%s\"", t[i].want);
        fx_open_tcp(x);
        fx_sendz(x, q.p);
        fx_until(x, "\r\n\r\n");
        HAS(x, want.p);
    }
    fx_free(x);
}
static void create_with(struct fx *x, const char *key, const char *body)
{
    auto_buf q = {0};
    buf_printf(&q, "POST /v2/sandboxes HTTP/1.1\r\nHost: localhost\r\nX-API-Key: " KEY "\r\nIdempotency-Key: %s\r\nContent-Length: %zu\r\n\r\n%s", key, strlen(body), body);
    F.create.cb = NULL;
    fx_open_tcp(x);
    fx_sendz(x, q.p);
    fx_turn(x, 10), fx_read(x);
}
TEST(api, one_key_makes_one_sandbox)
{
    struct fx *x = fx_new();
    const char *body = "{\"templateID\":\"base\"}";
    create_with(x, "a-1", body);
    CHECK(F.create.cb != NULL);
    F.create.cb(F.create.arg, &x->core.sb, NULL);
    kv_set(&x->core.sb.kept.dialect, S("e2b.create_key_once"), S("a-1"));
    kv_set(&x->core.sb.kept.dialect, S("e2b.create_body_once"), S("7ec65e51c1db24fd8d7fe33d85fcfd5eb00e6e08bf6a6a4ba8c8bf14e4d0e2a0"));
    create_with(x, "a-1", body); /* not the hash of this one */
    HAS(x, "HTTP/1.1 422");
    HAS(x, "\"error_code\":\"idempotency_request_mismatch\"");
    char hash[65], of_path[] = "/v2/sandboxes\n{\"templateID\":\"base\"}";
    sha256_hex(body, strlen(body), hash); /* asked for by another call, which says no path here */
    kv_set(&x->core.sb.kept.dialect, S("e2b.create_body_once"), str_of(hash));
    create_with(x, "a-1", body);
    HAS(x, "HTTP/1.1 422");
    sha256_hex(of_path, strlen(of_path), hash);
    kv_set(&x->core.sb.kept.dialect, S("e2b.create_body_once"), str_of(hash));
    create_with(x, "a-1", body);
    CHECK(F.create.cb == NULL);
    HAS(x, "HTTP/1.1 201");
    HAS(x, "\"sandboxID\":\"" ID "\"");
    fake_tenant = "somebody"; /* whose key it is; ours makes another sandbox */
    create_with(x, "a-1", body);
    CHECK(F.create.cb != NULL);
    F.create.cb(F.create.arg, &x->core.sb, NULL);
    fake_tenant = "owner";
    x->core.sb.state = SB_CREATING;
    create_with(x, "a-1", body);
    HAS(x, "HTTP/1.1 409");
    HAS(x, "Should-Retry: true");
    HAS(x, "\"error_code\":\"idempotency_in_progress\"");
    create_with(x, "other", body);
    CHECK(F.create.cb != NULL);
    F.create.cb(F.create.arg, &x->core.sb, NULL);
    create_with(x, "Big", body);
    HAS(x, "HTTP/1.1 400");
    HAS(x, "\"message\":\"Idempotency-Key must have 1 to 255");
    fx_free(x);
}
/* Their words on the left, the policy that is asked of core on the right. */
TEST(api, network_is_translated)
{
    static const struct { const char *body, *policy; } t[] = {
        {"", "{\"mode\":\"open\",\"allow\":[],\"deny\":[]}"},
        {",\"allow_internet_access\":true", "{\"mode\":\"open\",\"allow\":[],\"deny\":[]}"},
        {",\"allow_internet_access\":false", "{\"mode\":\"none\",\"allow\":[]}"},
        {",\"network\":{\"denyOut\":[\"0.0.0.0/0\"]}", "{\"mode\":\"none\",\"allow\":[]}"},
        {",\"network\":{\"denyOut\":[\"1.1.1.1\",\"8.8.8.0/24\"]}", "{\"mode\":\"open\",\"allow\":[],\"deny\":[\"1.1.1.1\",\"8.8.8.0/24\"]}"},
        {",\"network\":{\"denyOut\":[\"0.0.0.0/0\"],\"allowOut\":[\"1.1.1.1\",\"*.example.org\"]}",
         "{\"mode\":\"allow\",\"allow\":[{\"cidr\":\"1.1.1.1\"},{\"domain\":\"*.example.org\"}]}"},
        {",\"allow_internet_access\":false,\"network\":{\"allowOut\":[\"example.org\"]}", "{\"mode\":\"allow\",\"allow\":[{\"domain\":\"example.org\"}]}"},
        {",\"network\":{\"denyOut\":[\"0.0.0.0/0\"],\"allowOut\":[\"0.0.0.0/0\"]}", "{\"mode\":\"open\",\"allow\":[],\"deny\":[]}"},
        {",\"network\":{\"rules\":{\"a.org\":[{\"transform\":{\"headers\":{\"X-Tok\":\"v\",\"Authorization\":\"Bearer ${e2b.secrets.key}!\"}}}]}}",
         "{\"mode\":\"open\",\"allow\":[],\"deny\":[],\"inject\":[{\"domain\":\"a.org\",\"header\":\"X-Tok\",\"value\":\"v\"},"
         "{\"domain\":\"a.org\",\"header\":\"Authorization\",\"secret\":\"key\",\"format\":\"Bearer {secret}!\"}]}"},
    };
    struct fx *x = fx_new();
    for (size_t i = 0; i < sizeof t / sizeof *t; i++) {
        auto_buf body = {0};
        buf_printf(&body, "{\"templateID\":\"base\"%s}", t[i].body);
        F.create.cb = NULL;
        fx_begin(x, "POST", "/v2/sandboxes", body.p);
        fx_turn(x, 5);
        CHECK(F.create.cb != NULL);
        CHECK_STR(F.network.text.p, t[i].policy);
        F.create.cb(F.create.arg, &x->core.sb, NULL);
        fx_until(x, "\r\n\r\n");
    }
    fx_free(x);
}
TEST(api, network_update_replaces_egress_and_keeps_ingress)
{
    struct fx *x = fx_new();
    kv_set(&x->core.sb.kept.dialect, S("e2b.network"), S("{\"allowPublicTraffic\":false,\"denyOut\":[\"1.1.1.1\"]}"));
    fx_begin(x, "PUT", "/sandboxes/" ID "/network", "{\"rules\":{\"a.org\":[{\"transform\":{\"headers\":{\"X\":\"hidden-value\"}}}]}}");
    fx_turn(x, 5);
    CHECK(F.network.cb != NULL);
    F.network.cb(F.network.arg, NULL, 0);
    fx_until(x, "\r\n\r\n");
    HAS(x, "HTTP/1.1 204");
    CHECK_STR(kv_get(&x->core.sb.kept.dialect, "e2b.network"), "{\"allowPublicTraffic\":false,\"rules\":{\"a.org\":[{\"transform\":{\"headers\":{\"X\":\"********\"}}}]}}");
    kv_free(&x->core.sb.kept.dialect);
    fx_free(x);
}
TEST(api, create_refusals)
{
    static const struct { const char *body, *text; } bad[] = {
        {"{}", "templateID"}, {"{\"templateID\":\"a b\"}", "Invalid template reference"}, {"{\"templateID\":\"base\",\"timeout\":0}", "Timeout must be greater than 0"},
        {"{\"templateID\":\"base\",\"timeout\":999999}", "Timeout cannot be greater than 24 hours"},
        {"{\"templateID\":\"base\",\"network\":{\"denyOut\":[\"example.org\"]}}", "invalid denied CIDR example.org"},
        {"{\"templateID\":\"base\",\"network\":{\"allowOut\":[\"example.org\"]}}", "denyOut must contain 0.0.0.0/0"},
        {"{\"templateID\":\"base\",\"network\":{\"egressProxy\":{\"address\":\"p:1080\"}}}", "egressProxy"},
        {"{\"templateID\":\"base\",\"network\":{\"httpsPorts\":[443]}}", "httpsPorts"},
        {"{\"templateID\":\"base\",\"network\":{\"rules\":{\"a.org\":[{\"transform\":{\"headers\":{\"X\":\"${e2b.identity.tokens.t}\"}}}]}}}", "identity"},
        {"{\"templateID\":\"base\",\"network\":{\"maskRequestHost\":\"a b\"}}", "maskRequestHost"},
        {"{\"templateID\":\"base\",\"volumeMounts\":[{\"name\":\"v\"}]}", "invalid mounts: volumeMounts[0].path"},
        {"{\"templateID\":\"base\",\"metadata\":{\"hutch.isolation\":\"none\"}}", "hutch.isolation"}, {"[", "code\":400"}, {"{\"templateID\":7}", "templateID"},
    };
    struct fx *x = fx_new();
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        fx_ask(x, "POST", "/v2/sandboxes", bad[i].body);
        HAS(x, "HTTP/1.1 400");
        HAS(x, bad[i].text);
    }
    fx_free(x);
}

/* ---- templates ---- */
static void with_home(struct fx *x)
{
    snprintf(x->core.cfg.home, sizeof x->core.cfg.home, "/tmp/test-e2b-XXXXXX");
    CHECK(mkdtemp(x->core.cfg.home) != NULL);
}
static void without_home(struct fx *x)
{
    auto_buf p = {0};
    buf_printf(&p, "%s/e2b.json", x->core.cfg.home);
    unlink(p.p);
    rmdir(x->core.cfg.home);
}
static void member(const struct fx *x, const char *key, char *out, size_t cap)
{
    auto_buf k = {0};
    buf_printf(&k, "\"%s\":\"", key);
    const char *p = strstr(x->in.p, k.p);
    CHECK(p != NULL);
    snprintf(out, cap, "%.*s", (int)strcspn(p + k.n, "\""), p + k.n);
}
TEST(templates, build_tags_and_memory)
{
    struct fx *x = fx_new();
    char tid[64], bid[64];
    auto_buf url = {0};
    with_home(x);
    fx_ask(x, "POST", "/v3/templates", "{\"name\":\"My_App:V1\",\"tags\":[\"Stable\"]}");
    HAS(x, "HTTP/1.1 202");
    HAS(x, "\"names\":[\"hutch/my_app\"],\"aliases\":[\"my_app\"],\"tags\":[\"stable\",\"v1\"]");
    member(x, "templateID", tid, sizeof tid);
    member(x, "buildID", bid, sizeof bid);
    fx_ask(x, "GET", "/templates/aliases/my_app", NULL);
    HAS(x, "HTTP/1.1 200");
    buf_printf(&url, "/templates/%s/builds/%s/status", tid, bid);
    fx_ask(x, "GET", url.p, NULL);
    HAS(x, "\"status\":\"waiting\"");
    url.n = 0;
    buf_printf(&url, "/v2/templates/%s/builds/%s", tid, bid);
    fx_ask(x, "POST", url.p, "{\"fromTemplate\":\"base\",\"steps\":[{\"type\":\"RUN\",\"args\":[\"make\"]}]}");
    HAS(x, "HTTP/1.1 202");
    HAS(x, "Content-Length: 0");
    CHECK(F.build != NULL);
    CHECK(strstr(F.recipe.p, "RUN [\"/bin/bash\",\"-l\",\"-c\",\"make\"]") != NULL);
    fx_ask(x, "POST", url.p, "{}");
    HAS(x, "HTTP/1.1 400"); /* not waiting any more */
    for (int i = 0; i < 150; i++)
        F.build->ops.log(F.build->arg, "line");
    url.n = 0;
    buf_printf(&url, "/templates/%s/builds/%s/status?logsOffset=100", tid, bid);
    fx_ask(x, "GET", url.p, NULL);
    HAS(x, "\"status\":\"building\"");
    struct template *t = template_find(&x->core, "base", NULL);
    fake_build_done(t, NULL);
    url.n = 0;
    buf_printf(&url, "/templates/%s/builds/%s/status?logsOffset=1000", tid, bid);
    fx_ask(x, "GET", url.p, NULL);
    HAS(x, "\"status\":\"ready\",\"logs\":[],\"logEntries\":[]");
    fx_ask(x, "POST", "/templates/tags", "{\"target\":\"my_app:v1\",\"tags\":[\"prod\"]}");
    HAS(x, "HTTP/1.1 201");
    HAS(x, bid);
    fx_ask(x, "POST", "/templates/tags", "{\"target\":\"my_app:v9\",\"tags\":[\"prod\"]}");
    HAS(x, "HTTP/1.1 404");
    fx_ask(x, "POST", "/templates/tags", "{\"target\":\"my_app:v1\",\"tags\":[\"ok\",\":x\"]}");
    HAS(x, "HTTP/1.1 400");
    fx_ask(x, "DELETE", "/templates/tags", "{\"name\":\"my_app\",\"tags\":[\"stable\"]}");
    HAS(x, "HTTP/1.1 204");
    /* another daemon on the same home */
    struct e2b *again = e2b_dialect.start(x->api);
    struct e2b_found f;
    struct err e;
    CHECK_INT(catalogue_resolve(again, &caller_daemon, "my_app:prod", &f, &e), 0);
    CHECK_STR(f.template_id, tid);
    CHECK_STR(f.build_id, bid);
    CHECK_INT(catalogue_resolve(again, &caller_daemon, "hutch/my_app", &f, &e), 0);
    CHECK_INT(catalogue_resolve(again, &caller_daemon, "my_app:stable", &f, &e), -1);
    CHECK_STR(e.msg, "tag 'stable' does not exist for template 'my_app'");
    CHECK(catalogue_get(again, &caller_daemon, "my_app") &&
          !kv_get(&catalogue_get(again, &caller_daemon, "my_app")->tags, "ok"));
    e2b_dialect.stop(again);
    without_home(x);
    fx_free(x);
}
TEST(templates, failures_are_kept)
{
    struct fx *x = fx_new();
    char tid[64], bid[64];
    auto_buf url = {0};
    with_home(x);
    fx_ask(x, "POST", "/v3/templates", "{\"name\":\"bad\"}");
    HAS(x, "\"tags\":[\"default\"]");
    member(x, "templateID", tid, sizeof tid);
    member(x, "buildID", bid, sizeof bid);
    buf_printf(&url, "/v2/templates/%s/builds/%s", tid, bid);
    fx_ask(x, "POST", url.p, "{\"fromImage\":\"ubuntu:22.04\"}");
    HAS(x, "HTTP/1.1 202");
    url.n = 0;
    buf_printf(&url, "/templates/%s/builds/%s/status", tid, bid);
    fx_ask(x, "GET", url.p, NULL);
    HAS(x, "\"status\":\"building\""); /* who looks right after the start sees it build */
    CHECK(!strstr(x->in.p, "\"reason\""));
    fx_ask(x, "GET", url.p, NULL);
    HAS(x, "\"status\":\"error\"");
    HAS(x, "image 'ubuntu:22.04' is not on this host");
    fx_ask(x, "DELETE", "/templates/bad", NULL);
    HAS(x, "HTTP/1.1 204");
    fx_ask(x, "DELETE", "/templates/bad", NULL);
    HAS(x, "HTTP/1.1 404");
    without_home(x);
    fx_free(x);
}
TEST(templates, uploads_need_their_signature)
{
    struct fx *x = fx_new();
    fx_open_tcp(x);
    fx_sendz(x, "PUT /templates/t1/files/aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa?until=99999999999&signature=00 HTTP/1.1\r\n"
                "Host: localhost\r\nContent-Length: 0\r\n\r\n");
    fx_until(x, "\r\n\r\n");
    HAS(x, "HTTP/1.1 403");
    fx_free(x);
}

/* ---- traffic ---- */
#define TO "E2b-Sandbox-Id: " ID "\r\nE2b-Sandbox-Port: 3000\r\n"
static void traffic(struct fx *x, const char *request)
{
    fx_open_tcp(x);
    fx_sendz(x, request);
    fx_turn(x, 10);
}
static void guest(struct fx *x, const char *bytes)
{
    T.t->ops.data(T.t->arg, (const unsigned char *)bytes, strlen(bytes));
    fx_turn(x, 10);
    fx_read(x);
}
#define TOKEN "0011223344556677889900112233445566778899"
TEST(ingress, keeps_our_credentials)
{
    struct fx *x = fx_new();
    static const char *const ours[] = {
        "X-API-Key: anything",
        "x-api-key: " KEY,
        "Authorization: Bearer " KEY,
        "authorization: " KEY,
        "X-Access-Token: " KEY,
        "X-My-Key: " KEY,
        "X-Access-Token: " TOKEN,
        "Authorization: Bearer " TOKEN,
        "Authorization: Bearer volume-token",
        "E2b-Traffic-Access-Token: traffic-token",
    };
    snprintf(x->core.sb.token, sizeof x->core.sb.token, TOKEN);
    snprintf(x->core.cfg.key_prefix, sizeof x->core.cfg.key_prefix, "e2b_");
    snprintf(fake_volume.token, sizeof fake_volume.token, "volume-token");
    for (size_t i = 0; i < sizeof ours / sizeof *ours; i++) {
        auto_buf q = {0};
        buf_printf(&q, "GET / HTTP/1.1\r\nHost: localhost\r\n" TO "%s\r\nX-Last: 1\r\n\r\n",
                   ours[i]);
        T.sent.n = 0;
        traffic(x, q.p);
        T.t->ops.up(T.t->arg);
        fx_turn(x, 10);
        struct str value = {strchr(ours[i], ':') + 2, strlen(strchr(ours[i], ':') + 2)};
        CHECK(strstr(T.sent.p, "X-Last: 1\r\n") && !memmem(T.sent.p, T.sent.n, value.p, value.n));
    }
    /* what the guest's own server gave its clients is theirs */
    T.sent.n = 0;
    traffic(
        x,
        "GET / HTTP/1.1\r\nHost: localhost\r\n" TO
        "Authorization: Basic dTpw\r\nX-Access-Token: theirs\r\nX-Key: e2b_no\r\nCookie: a=b\r\n\r\n");
    T.t->ops.up(T.t->arg);
    fx_turn(x, 10);
    CHECK(strstr(T.sent.p, "Basic dTpw") && strstr(T.sent.p, "theirs") &&
          strstr(T.sent.p, "e2b_no") && strstr(T.sent.p, "Cookie: a=b"));
    fx_free(x);
}
TEST(ingress, passes_a_request_and_its_answer)
{
    struct fx *x = fx_new();
    traffic(x, "POST /p?q=1 HTTP/1.1\r\nHost: localhost\r\n" TO "Connection: x-hop\r\nX-Hop: 1\r\nX-Keep: 2\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n");
    CHECK_INT(T.port, 3000);
    CHECK_INT(T.sent.n, 0);
    T.t->ops.up(T.t->arg);
    fx_turn(x, 10);
    CHECK(!strncmp(T.sent.p, "POST /p?q=1 HTTP/1.1\r\nHost: localhost\r\n", 39));
    CHECK(strstr(T.sent.p, "X-Keep: 2\r\n") && !strstr(T.sent.p, "X-Hop"));
    CHECK(strstr(T.sent.p, "Transfer-Encoding: chunked\r\nConnection: close\r\n\r\n3\r\nabc\r\n0\r\n\r\n"));
    guest(x, "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 201 Created\r\nContent-Type: text/x\r\nX-A: 1\r\nConnection: x-b\r\nX-B: 2\r\nContent-Length: 5\r\n\r\nhe");
    CHECK(T.t != NULL);
    guest(x, "llo");
    HAS(x, "HTTP/1.1 201 Created");
    HAS(x, "Content-Type: text/x\r\n");
    HAS(x, "X-A: 1\r\n");
    HAS(x, "\r\n\r\nhello");
    CHECK(!strstr(x->in.p, "X-B"));
    CHECK(T.t == NULL);
    CHECK_INT(T.closes, 1);
    fx_free(x);
}
TEST(ingress, retries_then_says_the_port_is_closed)
{
    struct fx *x = fx_new();
    struct err e;
    err_set(&e, E_UNAVAILABLE, "nothing listens");
    traffic(x, "GET / HTTP/1.1\r\nHost: localhost\r\n" TO "\r\n");
    int64_t end = clock_mono() + 3 * NS_PER_S;
    while (clock_mono() < end && !(x->in.n && memmem(x->in.p, x->in.n, "502", 3))) {
        if (T.t)
            fake_tunnel_done(&e);
        loop_turn(x->core.loop, false);
        fx_read(x);
    }
    CHECK(T.opens > 3);
    fx_turn(x, 5), fx_read(x);
    HAS(x, "HTTP/1.1 502");
    HAS(x, "{\"message\":\"The sandbox is running but port is not open\",\"sandboxId\":\"" ID "\",\"port\":3000,\"code\":502}");
    fx_free(x);
}
TEST(ingress, broken_answers_and_ends)
{
    struct fx *x = fx_new();
    struct err e;
    traffic(x, "GET / HTTP/1.1\r\nHost: localhost\r\n" TO "\r\n");
    T.t->ops.up(T.t->arg);
    guest(x, "SSH-2.0-OpenSSH\r\n\r\n");
    HAS(x, "HTTP/1.1 502");
    CHECK(T.t == NULL);
    traffic(x, "GET / HTTP/1.1\r\nHost: localhost\r\n" TO "\r\n");
    T.t->ops.up(T.t->arg);
    err_set(&e, E_GONE, "ended");
    fake_tunnel_done(&e);
    fx_turn(x, 10), fx_read(x);
    HAS(x, "{\"sandboxId\":\"" ID "\",\"message\":\"The sandbox was not found\",\"code\":502}");
    traffic(x, "GET / HTTP/1.1\r\nHost: localhost\r\n" TO "\r\n");
    T.t->ops.up(T.t->arg);
    guest(x, "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf");
    fake_tunnel_done(&e); /* cut, not ended */
    fx_turn(x, 10);
    while (fx_read(x))
        fx_turn(x, 1);
    CHECK(!strstr(x->in.p, "502"));
    fx_free(x);
}
TEST(ingress, upgrades_and_passes_bytes)
{
    struct fx *x = fx_new();
    traffic(x, "GET /ws HTTP/1.1\r\nHost: localhost\r\n" TO "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Key: k\r\n\r\n");
    T.t->ops.up(T.t->arg);
    CHECK(strstr(T.sent.p, "Connection: Upgrade\r\nUpgrade: websocket\r\n\r\n") && strstr(T.sent.p, "Sec-WebSocket-Key: k\r\n"));
    T.sent.n = 0;
    guest(x, "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: a\r\n\r\nfirst");
    HAS(x, "HTTP/1.1 101");
    HAS(x, "Sec-WebSocket-Accept: a\r\n");
    HAS(x, "\r\n\r\nfirst");
    fx_sendz(x, "ping");
    fx_turn(x, 10);
    CHECK_INT(T.sent.n, 4);
    shutdown(x->fd, SHUT_WR);
    fx_turn(x, 10);
    CHECK(T.eof);
    fake_tunnel_done(NULL);
    fx_turn(x, 10);
    fx_free(x);
}
TEST(ingress, the_client_leaving_closes_it)
{
    struct fx *x = fx_new();
    traffic(x, "GET / HTTP/1.1\r\nHost: localhost\r\n" TO "\r\n");
    CHECK(T.t != NULL);
    fx_close(x);
    fx_turn(x, 10);
    CHECK(T.t == NULL);
    CHECK_INT(T.closes, 1);
    fx_free(x);
}
TEST(traffic, refusals)
{
    static const struct { const char *head, *status, *text; } bad[] = {
        {"Host: localhost\r\nE2b-Sandbox-Id: " ID "\r\n", "400", "missing header"},
        {"Host: localhost\r\nE2b-Sandbox-Id: A-b\r\nE2b-Sandbox-Port: 1\r\n", "400", "Invalid sandbox ID"},
        {"Host: localhost\r\nE2b-Sandbox-Id: " ID "\r\nE2b-Sandbox-Port: x\r\n", "400", "Invalid sandbox port"},
        {"Host: evil.example\r\n" TO, "400", "Invalid host"},
        {"Host: 3000-.x.org\r\n", "400", "Invalid sandbox ID"},
        {"Host: 3000-iother.x.org\r\n", "502", "{\"sandboxId\":\"iother\",\"message\":\"The sandbox was not found\",\"code\":502}"},
    };
    struct fx *x = fx_new();
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        auto_buf q = {0};
        buf_printf(&q, "GET / HTTP/1.1\r\n%s\r\n", bad[i].head);
        fx_open_tcp(x);
        fx_sendz(x, q.p);
        fx_until(x, "\r\n\r\n");
        fx_turn(x, 5), fx_read(x);
        HAS(x, bad[i].status);
        HAS(x, bad[i].text);
    }
    fx_free(x);
}
TEST(traffic, a_browser_gets_a_page)
{
    static const char ask[] = "GET / HTTP/1.1\r\nHost: 3000-iother.x.org\r\nAccept: text/html,*/*;q=0.8\r\n";
    struct fx *x = fx_new();
    auto_buf q = {0};
    buf_printf(&q, "%s\r\n", ask);
    traffic(x, q.p), fx_read(x);
    HAS(x, "HTTP/1.1 502");
    HAS(x, "Content-Type: text/html");
    HAS(x, "<h1>The sandbox was not found</h1>");
    HAS(x, "<code>iother</code>");
    q.n = 0;
    buf_printf(&q, "%sSec-Fetch-Mode: cors\r\n\r\n", ask); /* a page's own request */
    traffic(x, q.p), fx_read(x);
    HAS(x, "Content-Type: application/json");
    fx_free(x);
}
TEST(traffic, private_ports_need_their_token)
{
    struct fx *x = fx_new();
    kept_set(&x->core.sb.kept.preview_token, "secret");
    kept_set(&x->core.sb.kept.preview_mask_host, "app:${PORT}");
    traffic(x, "GET / HTTP/1.1\r\nHost: localhost\r\n" TO "E2b-Traffic-Access-Token: wrong!\r\n\r\n");
    fx_read(x);
    HAS(x, "HTTP/1.1 403");
    HAS(x, "\"code\":403");
    CHECK_INT(T.opens, 0);
    traffic(x, "GET / HTTP/1.1\r\nHost: localhost\r\n" TO "E2b-Traffic-Access-Token: secret\r\n\r\n");
    CHECK_INT(T.opens, 1);
    T.t->ops.up(T.t->arg);
    CHECK(strstr(T.sent.p, "Host: app:3000\r\nX-Forwarded-Host: localhost\r\n") && !strstr(T.sent.p, "secret"));
    fx_free(x);
}

TEST_MAIN
