#include "base/buf.h"
#include "gate/policy.h"
#include "test.h"

static struct policy *must(const char *json, unsigned flags)
{
    struct err e = {0};
    struct policy *p = policy_parse(json, strlen(json), flags, &e);
    if (!p)
        printf("# %s: %s\n", json, e.msg);
    CHECK(p);
    return p;
}
static void refused(const char *json, unsigned flags, const char *words)
{
    struct err e = {0};
    struct policy *p = policy_parse(json, strlen(json), flags, &e);
    if (p || !strstr(e.msg, words))
        printf("# %s: %s\n", json, p ? "taken" : e.msg);
    CHECK(!p && e.code == E_INVALID && strstr(e.msg, words));
}

struct q { const char *name, *addr; uint16_t port; enum policy_proto proto; const char *method, *path; bool looked, websocket; };
static struct policy_verdict ask_set(const struct policy_set *s, struct q q)
{
    struct ip ip;
    if (q.addr)
        CHECK(ip_parse(str_of(q.addr), &ip));
    struct policy_ask a = {.name = str_of(q.name), .addr = q.addr ? &ip : NULL, .port = q.port, .proto = q.proto, .looked = q.looked,
                           .method = str_of(q.method), .path = str_of(q.path), .websocket = q.websocket};
    struct policy_verdict v;
    policy_decide(s, &a, &v);
    CHECK((v.answer == ANSWER_DENY) == (v.reason[0] != 0));
    CHECK(v.rule[0]);
    CHECK(!q.looked || v.answer != ANSWER_LOOK);
    return v;
}
static struct policy_verdict ask(const char *json, struct q q)
{
    struct policy *p = must(json, 0);
    struct policy_set s = {.own = p};
    struct policy_verdict v = ask_set(&s, q);
    policy_unref(p);
    return v;
}
#define ASK(json, ...) ask(json, (struct q){__VA_ARGS__}).answer
static bool resolves(const char *json, const char *name)
{
    struct policy *p = must(json, 0);
    struct policy_set s = {.own = p};
    struct policy_verdict v;
    policy_dns(&s, str_of(name), &v);
    CHECK((v.answer == ANSWER_DENY) == (v.reason[0] != 0));
    policy_unref(p);
    return v.answer == ANSWER_ALLOW;
}

#define PUB "93.184.216.34"

TEST(policy, nothing_said_means_nothing_allowed)
{
    CHECK_INT(ASK("", .addr = PUB, .port = 443), ANSWER_DENY);
    CHECK_INT(ASK("{}", .name = "example.org", .addr = PUB, .port = 443, .proto = PROTO_TLS), ANSWER_DENY);
    CHECK(!resolves("{}", "example.org"));
    CHECK_INT(ASK("{\"mode\":\"none\",\"allow\":[\"example.org\"]}", .name = "example.org", .addr = PUB, .port = 443, .proto = PROTO_TLS), ANSWER_DENY);
    CHECK(!resolves("{\"mode\":\"none\",\"allow\":[\"example.org\"]}", "example.org"));
    struct policy *p = must("{\"allow\":[\"example.org\"]}", 0);
    CHECK_INT(policy_mode(p), POLICY_ALLOW); /* a list means it */
    policy_unref(p);
}

TEST(policy, names_are_allowed_by_name_only)
{
    const char *j = "{\"mode\":\"allow\",\"allow\":[\"example.org\",\"*.pypi.example\"]}";
    CHECK_INT(ASK(j, .addr = PUB, .port = 443), ANSWER_LOOK);
    CHECK_INT(ASK(j, .addr = PUB, .port = 22), ANSWER_DENY);
    CHECK_INT(ASK(j, .addr = PUB, .port = 443, .looked = true), ANSWER_DENY); /* neither HTTP nor TLS, or no SNI */
    CHECK_INT(ASK(j, .addr = PUB, .port = 443, .proto = PROTO_TLS, .looked = true), ANSWER_DENY);
    struct policy_verdict v = ask(j, (struct q){.name = "example.org", .addr = PUB, .port = 443, .proto = PROTO_TLS});
    CHECK(v.answer == ANSWER_ALLOW && v.by_name && !v.intercept);
    CHECK_STR(v.rule, "allow example.org");
    CHECK_INT(ASK(j, .name = "files.pypi.example", .addr = PUB, .port = 80, .proto = PROTO_HTTP, .method = "GET", .path = "/"), ANSWER_ALLOW);
    CHECK_INT(ASK(j, .name = "pypi.example", .addr = PUB, .port = 443, .proto = PROTO_TLS), ANSWER_DENY);
    CHECK_INT(ASK(j, .name = "example.org", .addr = PUB, .port = 8443, .proto = PROTO_TLS), ANSWER_DENY);
    CHECK_INT(ASK(j, .name = "example.org", .addr = PUB, .port = 443, .proto = PROTO_TCP, .looked = true), ANSWER_DENY);
    CHECK_INT(ASK(j, .name = "example.org", .addr = PUB, .port = 443, .proto = PROTO_UDP), ANSWER_DENY); /* QUIC */
    CHECK(resolves(j, "example.org") && resolves(j, "a.pypi.example") && !resolves(j, "evil.example.org") && !resolves(j, "pypi.example"));
}

TEST(policy, datagrams_need_a_rule_of_their_own)
{
    const char *j = "{\"mode\":\"open\",\"allow\":[\"*\",{\"domain\":\"*.example\",\"protocol\":\"any\"},{\"domain\":\"time.example\",\"ports\":[123],\"protocol\":\"udp\"},"
                    "{\"cidr\":\"93.184.216.0/24\",\"ports\":[7]}],\"deny\":[{\"domain\":\"bad.example\",\"final\":true}]}";
    CHECK_INT(ASK(j, .addr = "1.1.1.1", .port = 443, .proto = PROTO_UDP, .looked = true), ANSWER_DENY); /* QUIC, in mode open */
    CHECK_INT(ASK(j, .name = "a.example", .addr = "1.1.1.1", .port = 443, .proto = PROTO_UDP, .looked = true), ANSWER_DENY); /* "any" of a name */
    CHECK_INT(ASK(j, .name = "time.example", .addr = "1.1.1.1", .port = 123, .proto = PROTO_UDP, .looked = true), ANSWER_ALLOW);
    CHECK_INT(ASK(j, .name = "time.example", .addr = "1.1.1.1", .port = 124, .proto = PROTO_UDP, .looked = true), ANSWER_DENY);
    CHECK_INT(ASK(j, .name = "time.example", .addr = "10.0.0.1", .port = 123, .proto = PROTO_UDP, .looked = true), ANSWER_DENY);
    CHECK_INT(ASK(j, .addr = "1.1.1.1", .port = 123, .proto = PROTO_UDP, .looked = true), ANSWER_DENY); /* not resolved under that name */
    CHECK_INT(ASK(j, .addr = PUB, .port = 7, .proto = PROTO_UDP, .looked = true), ANSWER_ALLOW);
    CHECK_INT(ASK(j, .name = "bad.example", .addr = PUB, .port = 7, .proto = PROTO_UDP, .looked = true), ANSWER_DENY);
    CHECK(strstr(ask(j, (struct q){.addr = "1.1.1.1", .port = 9, .proto = PROTO_UDP, .looked = true}).reason, "protocol udp"));
    CHECK(resolves("{\"allow\":[{\"domain\":\"time.example\",\"ports\":[123],\"protocol\":\"udp\"}]}", "time.example"));
    struct policy *own = must("{\"allow\":[{\"cidr\":\"93.184.216.34\",\"protocol\":\"udp\"}]}", 0), *open = must("{\"mode\":\"open\"}", POLICY_CEILING),
                  *list = must("{\"allow\":[\"example.org\"]}", POLICY_CEILING);
    struct policy_set s = {.own = own, .ceiling = {open, list}, .ceiling_name = {"host", "tenant"}, .nceilings = 1};
    struct q q = {.addr = PUB, .port = 5, .proto = PROTO_UDP, .looked = true};
    CHECK_INT(ask_set(&s, q).answer, ANSWER_ALLOW); /* an open ceiling takes nothing away */
    s.nceilings = 2;
    CHECK_INT(ask_set(&s, q).answer, ANSWER_DENY);
    policy_unref(own), policy_unref(open), policy_unref(list);
}

TEST(policy, closed_addresses_stay_closed_even_when_allowed)
{
    static const char *const addr[] = {"127.0.0.1", "169.254.169.254", "10.0.0.1", "192.168.1.1", "::1", "fd00:ec2::254", "::ffff:10.0.0.1", "64:ff9b::7f00:1"};
    for (size_t i = 0; i < sizeof addr / sizeof *addr; i++) {
        struct policy_verdict v = ask("{\"mode\":\"open\",\"allow\":[\"0.0.0.0/0\",\"::/0\",\"10.0.0.0/8\"]}", (struct q){.addr = addr[i], .port = 80});
        CHECK_INT(v.answer, ANSWER_DENY);
        CHECK_STR(v.rule, "closed");
        CHECK(strstr(v.reason, "closed to every sandbox"));
    }
    refused("{\"private\":[\"10.0.0.0/8\"]}", 0, "private: only the operator");
}

TEST(policy, an_operator_may_open_a_closed_range_but_a_rule_must_still_allow_it)
{
    struct policy *own = must("{\"allow\":[\"10.1.2.3:5432\"]}", 0);
    struct policy *host = must("{\"mode\":\"open\",\"private\":[\"10.1.0.0/16\"]}", POLICY_CEILING);
    struct policy_set s = {.own = own, .ceiling = {host}, .ceiling_name = {"host"}, .nceilings = 1};
    CHECK_INT(ask_set(&s, (struct q){.addr = "10.1.2.3", .port = 5432}).answer, ANSWER_ALLOW);
    CHECK_INT(ask_set(&s, (struct q){.addr = "::ffff:10.1.2.3", .port = 5432}).answer, ANSWER_DENY); /* never connected to in that form */
    CHECK_INT(ask_set(&s, (struct q){.addr = "10.1.2.4", .port = 5432}).answer, ANSWER_DENY);
    CHECK_INT(ask_set(&s, (struct q){.addr = "10.2.2.3", .port = 5432}).answer, ANSWER_DENY);
    policy_unref(own), policy_unref(host);
}

static const char *mine(void *arg, const struct ip *a)
{
    (void)arg;
    struct ip me;
    CHECK(ip_parse(S("203.0.113.9"), &me));
    return ip_eq(a, &me) ? "the host's own address 203.0.113.9" : NULL;
}
TEST(policy, the_hosts_public_address_is_closed)
{
    struct policy *own = must("{\"mode\":\"open\"}", 0);
    struct policy_set s = {.own = own, .is_host = mine};
    CHECK_INT(ask_set(&s, (struct q){.addr = "203.0.113.9", .port = 80}).answer, ANSWER_DENY);
    CHECK_INT(ask_set(&s, (struct q){.addr = "203.0.113.8", .port = 80}).answer, ANSWER_ALLOW);
    policy_unref(own);
}

TEST(policy, order_final_deny_allow_deny_mode)
{
    const char *j = "{\"mode\":\"open\",\"allow\":[\"192.0.2.7\",\"good.example\"],\"deny\":[\"192.0.2.0/24\",\"*.example\",{\"cidr\":\"198.51.100.0/24\",\"final\":true}]}";
    CHECK_INT(ASK(j, .addr = "192.0.2.7", .port = 99, .looked = true), ANSWER_ALLOW);
    CHECK_INT(ASK(j, .addr = "192.0.2.8", .port = 99, .looked = true), ANSWER_DENY);
    CHECK_INT(ASK(j, .addr = "203.0.113.1", .port = 99, .looked = true), ANSWER_ALLOW);
    CHECK_INT(ASK(j, .addr = "203.0.113.1", .port = 99), ANSWER_LOOK); /* a denied name may be inside */
    CHECK_INT(ASK(j, .name = "bad.example", .addr = "203.0.113.1", .port = 443, .proto = PROTO_TLS), ANSWER_DENY);
    CHECK_INT(ASK(j, .name = "good.example", .addr = "203.0.113.1", .port = 443, .proto = PROTO_TLS), ANSWER_ALLOW);
    CHECK(!resolves(j, "bad.example") && resolves(j, "good.example") && resolves(j, "other.test"));
    const char *f = "{\"allow\":[\"198.51.100.7\"],\"deny\":[{\"cidr\":\"198.51.100.0/24\",\"final\":true,\"id\":\"no-lab\"}]}";
    struct policy_verdict v = ask(f, (struct q){.addr = "198.51.100.7", .port = 443});
    CHECK_INT(v.answer, ANSWER_DENY);
    CHECK_STR(v.rule, "deny no-lab");
}

TEST(policy, ceilings_only_take_away)
{
    struct policy *own = must("{\"mode\":\"open\",\"limits\":{\"connections\":50,\"bytes\":7}}", 0);
    struct policy *host = must("{\"mode\":\"open\",\"deny\":[{\"cidr\":\"192.0.2.0/24\"}],\"limits\":{\"connections\":10}}", POLICY_CEILING);
    struct policy *tenant = must("{\"mode\":\"allow\",\"allow\":[\"*.corp.example\"],\"limits\":{\"bytes\":100,\"bytes_per_second\":5}}", POLICY_CEILING);
    struct policy_set s = {.own = own, .ceiling = {host, tenant}, .ceiling_name = {"host", "tenant acme"}, .nceilings = 2};
    CHECK_INT(ask_set(&s, (struct q){.addr = PUB, .port = 443}).answer, ANSWER_LOOK);
    struct policy_verdict v = ask_set(&s, (struct q){.name = "a.corp.example", .addr = PUB, .port = 443, .proto = PROTO_TLS});
    CHECK(v.answer == ANSWER_ALLOW && v.by_name);
    v = ask_set(&s, (struct q){.name = "a.other.example", .addr = PUB, .port = 443, .proto = PROTO_TLS});
    CHECK_INT(v.answer, ANSWER_DENY);
    CHECK_STR(v.rule, "ceiling tenant acme: mode allow");
    CHECK(strstr(v.reason, "operator's limit"));
    CHECK_INT(ask_set(&s, (struct q){.name = "a.corp.example", .addr = "192.0.2.1", .port = 443, .proto = PROTO_TLS}).answer, ANSWER_DENY);
    policy_dns(&s, S("a.other.example"), &v);
    CHECK_INT(v.answer, ANSWER_DENY);
    struct policy_limits l = policy_limits(&s);
    CHECK_INT(l.connections, 10);
    CHECK_INT(l.bytes, 7);
    CHECK_INT(l.bytes_per_second, 5);
    CHECK_INT(l.dns_per_second, POLICY_DEFAULT_DNS);
    policy_unref(own), policy_unref(host), policy_unref(tenant);
}

TEST(policy, uninspected_tcp_by_name)
{
    const char *j = "{\"allow\":[{\"domain\":\"git.example\",\"ports\":[22],\"protocol\":\"tcp\"}]}";
    CHECK_INT(ASK(j, .addr = PUB, .port = 22), ANSWER_LOOK); /* the caller asks again with the names bound to the address */
    struct policy_verdict v = ask(j, (struct q){.name = "git.example", .addr = PUB, .port = 22, .proto = PROTO_TCP});
    CHECK(v.answer == ANSWER_ALLOW && v.by_name);
    CHECK_INT(ASK(j, .name = "evil.example", .addr = PUB, .port = 22, .proto = PROTO_TCP), ANSWER_DENY);
    CHECK_INT(ASK(j, .name = "git.example", .addr = PUB, .port = 443, .proto = PROTO_TLS), ANSWER_DENY);
}

TEST(policy, requests_by_method_and_path)
{
    const char *j = "{\"allow\":[{\"domain\":\"api.example\",\"methods\":[\"GET\",\"HEAD\"],\"paths\":[\"/v1\",\"/pub/\",\"/x*\",\"*/get-pack\"]}]}";
    struct policy_verdict v = ask(j, (struct q){.name = "api.example", .addr = PUB, .port = 443, .proto = PROTO_TLS});
    CHECK(v.answer == ANSWER_ALLOW && v.intercept && v.by_name);
    static const struct { const char *method, *path; int yes; } t[] = {
        {"GET", "/v1", 1}, {"GET", "/v1/a", 1}, {"GET", "/v1a", 0}, {"GET", "/v", 0}, {"GET", "/pub/", 1}, {"GET", "/pub", 0}, {"GET", "/pub/a/b", 1},
        {"GET", "/xyz", 1}, {"GET", "/get-pack", 1}, {"GET", "/a/b/get-pack", 1}, {"GET", "/a/forget-pack", 0}, {"GET", "/get-pack/a", 0}, {"GET", "/a/../get-pack", 0},
         {"GET", "/x", 1}, {"POST", "/v1", 0}, {"HEAD", "/v1", 1}, {"get", "/v1", 0},
        {"GET", "/v1/../admin", 0}, {"GET", "/v1/..", 0}, {"GET", "/v1/./a", 0}, {"GET", "/v1/%2e%2e/admin", 0}, {"GET", "/v1/%2E./admin", 0},
        {"GET", "/v1%2f..%2fadmin", 0}, {"GET", "/v1//admin", 0}, {"GET", "//v1/a", 0}, {"GET", "/v1/a\\..\\b", 0}, {"GET", "/v1/%5c..", 0},
        {"GET", "/v1/%252e%252e/", 0}, {"GET", "/v1/..;/admin", 0}, {"GET", "/v1/.hidden", 1}, {"GET", "/v1/a..b", 1}, {"GET", "*", 0}, {"GET", "/v1/%20", 1},
    };
    for (size_t i = 0; i < sizeof t / sizeof *t; i++) {
        int got = ASK(j, .name = "api.example", .addr = PUB, .port = 443, .proto = PROTO_TLS, .method = t[i].method, .path = t[i].path) == ANSWER_ALLOW;
        if (got != t[i].yes)
            printf("# %s %s\n", t[i].method, t[i].path);
        CHECK_INT(got, t[i].yes);
        CHECK_INT(ASK(j, .name = "api.example", .addr = PUB, .port = 80, .proto = PROTO_HTTP, .method = t[i].method, .path = t[i].path) == ANSWER_ALLOW, t[i].yes);
    }
    /* a plain rule for the same host makes interception unnecessary */
    const char *k = "{\"allow\":[{\"domain\":\"api.example\",\"methods\":[\"GET\"]},\"api.example\"]}";
    v = ask(k, (struct q){.name = "api.example", .addr = PUB, .port = 443, .proto = PROTO_TLS});
    CHECK(v.answer == ANSWER_ALLOW && !v.intercept);
}

TEST(policy, websockets_where_requests_are_looked_at)
{
#define WS(j) \
    ASK(j, .name = "api.example", .addr = PUB, .port = 443, .proto = PROTO_TLS, .method = "GET", \
        .path = "/v1/a", .websocket = true)
    CHECK_INT(WS("{\"allow\":[\"api.example\"]}"), ANSWER_ALLOW);
    CHECK_INT(WS("{\"mode\":\"open\"}"), ANSWER_ALLOW);
    CHECK_INT(WS("{\"allow\":[{\"domain\":\"api.example\",\"methods\":[\"GET\"]}]}"), ANSWER_DENY);
    CHECK_INT(WS("{\"allow\":[{\"domain\":\"api.example\",\"paths\":[\"/v1/\"]}]}"), ANSWER_DENY);
    CHECK_INT(
        WS("{\"allow\":[{\"domain\":\"api.example\",\"paths\":[\"/v1/\"],\"websocket\":true}]}"),
        ANSWER_ALLOW);
    CHECK_INT(
        WS("{\"allow\":[{\"domain\":\"api.example\",\"paths\":[\"/v2/\"],\"websocket\":true}]}"),
        ANSWER_DENY);
    struct policy *own = must("{\"mode\":\"open\"}", 0),
                  *over = must("{\"allow\":[{\"domain\":\"*\",\"methods\":[\"GET\"]}]}",
                               POLICY_CEILING);
    struct policy_set s = {.own = own, .ceiling = {over}, .ceiling_name = {"host"}, .nceilings = 1};
    struct policy_verdict v = ask_set(&s, (struct q){.name = "api.example",
                                                     .addr = PUB,
                                                     .port = 443,
                                                     .proto = PROTO_TLS,
                                                     .method = "GET",
                                                     .path = "/"});
    CHECK(v.answer == ANSWER_ALLOW && v.by_request);
    v = ask_set(&s, (struct q){.name = "api.example",
                               .addr = PUB,
                               .port = 443,
                               .proto = PROTO_TLS,
                               .method = "GET",
                               .path = "/",
                               .websocket = true});
    CHECK(v.answer == ANSWER_DENY && strstr(v.reason, "websocket"));
    policy_unref(own), policy_unref(over);
    refused("{\"allow\":[{\"domain\":\"a.b\",\"websocket\":1}]}", 0, "websocket");
    refused("{\"deny\":[{\"domain\":\"a.b\",\"websocket\":true}]}", 0, "websocket");
}

TEST(policy, secrets_of_a_host)
{
    struct policy *p = must(
        "{\"inject\":[{\"domain\":\"a.example\",\"secret\":\"s1\",\"header\":\"x\",\"paths\":[\"/v1/\"]},{\"domain\":\"a.example\",\"secret\":\"s1\",\"header\":\"y\"},"
        "{\"domain\":\"*.example\",\"secret\":\"s2\",\"header\":\"z\"},{\"domain\":\"b.example\",\"secret\":\"s3\",\"header\":\"x\"}]}",
        0);
    struct str id[4];
    CHECK_INT(policy_secrets_of_host(p, S("a.example"), 443, id, 4), 2);
    CHECK(str_eqz(id[0], "s1") && str_eqz(id[1], "s2"));
    CHECK_INT(policy_secrets_of_host(p, S("a.example"), 443, id, 1), 1);
    CHECK_INT(policy_secrets_of_host(p, S("a.example"), 8443, id, 4), 0);
    policy_unref(p);
}

TEST(policy, injection)
{
    const char *j = "{\"mode\":\"open\",\"inject\":[{\"domain\":\"api.example\",\"secret\":\"s1\",\"header\":\"Authorization\",\"format\":\"Bearer {secret}\",\"methods\":[\"POST\"]},"
                    "{\"domain\":\"*.example\",\"secret\":\"s2\",\"placeholder\":\"PLACEHOLDER-1\"}]}";
    struct policy *p = must(j, 0);
    CHECK(policy_intercepts(p) && policy_uses_secret(p, S("s1")) && !policy_uses_secret(p, S("s3")));
    struct str ids[4];
    CHECK_INT(policy_secrets(p, ids, 4), 2);
    struct policy_set s = {.own = p};
    CHECK_INT(ask_set(&s, (struct q){.addr = PUB, .port = 443}).answer, ANSWER_LOOK);
    CHECK_INT(ask_set(&s, (struct q){.addr = PUB, .port = 22}).answer, ANSWER_ALLOW);
    struct policy_verdict v = ask_set(&s, (struct q){.name = "api.example", .addr = PUB, .port = 443, .proto = PROTO_TLS});
    CHECK(v.answer == ANSWER_ALLOW && v.intercept && v.by_name);
    v = ask_set(&s, (struct q){.name = "api.other", .addr = PUB, .port = 443, .proto = PROTO_TLS});
    CHECK(v.answer == ANSWER_ALLOW && !v.intercept);
    struct policy_ask q = {.name = S("api.example"), .port = 443, .proto = PROTO_TLS, .method = S("POST"), .path = S("/")};
    struct policy_inject in[4];
    CHECK_INT(policy_injects(p, &q, in, 4), 2);
    CHECK(str_eqz(in[0].header, "authorization") && str_eqz(in[1].placeholder, "PLACEHOLDER-1"));
    q.method = S("GET");
    CHECK_INT(policy_injects(p, &q, in, 4), 1);
    q.proto = PROTO_HTTP; /* in clear: never */
    CHECK_INT(policy_injects(p, &q, in, 4), 0);
    policy_unref(p);
    refused("{\"inject\":[{\"domain\":\"*\",\"secret\":\"s\",\"header\":\"x\"}]}", 0, "inject[0].domain");
    refused("{\"inject\":[{\"domain\":\"a.b\",\"secret\":\"s\",\"header\":\"Host\"}]}", 0, "inject[0].header");
    refused("{\"inject\":[{\"domain\":\"a.b\",\"secret\":\"s\",\"header\":\"x\",\"format\":\"none\"}]}", 0, "inject[0].format");
    refused("{\"inject\":[{\"domain\":\"a.b\",\"secret\":\"s\",\"header\":\"x\",\"placeholder\":\"12345678\"}]}", 0, "exactly one");
    refused("{\"inject\":[{\"domain\":\"a.b\",\"secret\":\"s\",\"placeholder\":\"short\"}]}", 0, "inject[0].placeholder");
    refused("{\"inject\":[{\"domain\":\"a.b\",\"secret\":\"s\",\"header\":\"x\"}]}", POLICY_CEILING, "ceiling");
}

TEST(policy, refuses_what_it_does_not_understand)
{
    refused("{\"mode\":\"closed\"}", 0, "mode");
    refused("{\"alow\":[]}", 0, "alow");
    refused("{\"allow\":[\"exa mple\"]}", 0, "allow[0]");
    refused("{\"allow\":[\"192.0.2.1/24\"]}", 0, "allow[0]");
    refused("{\"allow\":[\"127.1\"]}", 0, "allow[0]");
    refused("{\"allow\":[{\"domain\":\"a.b\",\"cidr\":\"1.1.1.1\"}]}", 0, "exactly one");
    refused("{\"allow\":[{\"domain\":\"a.b\",\"ports\":[0]}]}", 0, "allow[0].ports[0]");
    refused("{\"allow\":[{\"domain\":\"a.b\",\"ports\":[\"9-8\"]}]}", 0, "allow[0].ports[0]");
    refused("{\"allow\":[{\"domain\":\"a.b\",\"protocol\":\"icmp\"}]}", 0, "protocol");
    refused("{\"allow\":[{\"domain\":\"a.b\",\"protocol\":\"udp\"}]}", 0, "needs ports");
    refused("{\"allow\":[{\"domain\":\"a.b\",\"paths\":[\"v1\"]}]}", 0, "paths[0]");
    refused("{\"allow\":[{\"domain\":\"a.b\",\"paths\":[\"*v1\"]}]}", 0, "paths[0]");
    refused("{\"allow\":[{\"domain\":\"a.b\",\"paths\":[\"*/v1*\"]}]}", 0, "paths[0]");
    refused("{\"allow\":[{\"domain\":\"a.b\",\"methods\":[\"get\"]}]}", 0, "methods[0]");
    refused("{\"allow\":[{\"domain\":\"a.b\",\"final\":true}]}", 0, "final");
    refused("{\"deny\":[{\"domain\":\"a.b\",\"paths\":[\"/\"]}]}", 0, "methods, paths");
    refused("{\"limits\":{\"connections\":-1}}", 0, "limits.connections");
    refused("{\"mode\":\"open\",\"mode\":\"none\"}", 0, "");
    struct err e = {0};
    char *big = calloc(1, POLICY_TEXT_MAX + 2);
    memset(big, ' ', POLICY_TEXT_MAX + 1);
    CHECK(!policy_parse(big, POLICY_TEXT_MAX + 1, 0, &e) && e.code == E_TOO_LARGE);
    free(big);
}

TEST(policy, writes_what_it_reads)
{
    static const char *const in[] = {
        "{}",
        "{\"mode\":\"open\",\"deny\":[\"x.example\",{\"cidr\":\"192.0.2.0/24\",\"final\":true,\"id\":\"lab\"}],\"limits\":{\"bytes\":5}}",
        "{\"allow\":[\"*\",\"a.b:8443\",\"[2001:db8::1]:443\",\"2001:db8::/32\",{\"domain\":\"*.c.d\",\"ports\":[1,\"5-9\"],\"protocol\":\"tcp\"},"
        "{\"domain\":\"e.f\",\"methods\":[\"GET\"],\"paths\":[\"/a\"],\"websocket\":true}],\"inject\":[{\"domain\":\"e.f\",\"secret\":\"k\",\"header\":\"X-K\",\"websocket\":true},"
        "{\"domain\":\"e.f\",\"secret\":\"k\",\"placeholder\":\"abcdefgh\"}]}",
        ("{\"deny\":[{\"domain\":\"t.u\",\"protocol\":\"udp\"}],\"allow\":[{\"cidr\":\"1.1.1.1\",\"protocol\":\"tls\"},{\"domain\":\"v.w\",\"protocol\":\"any\"},"
         "{\"domain\":\"v.w\",\"ports\":[5],\"protocol\":\"udp\"}]}"),
    };
    for (size_t i = 0; i < sizeof in / sizeof *in; i++) {
        struct policy *p = must(in[i], 0);
        struct buf a = {0}, b = {0};
        policy_write(p, &a);
        struct policy *q = must(a.p, 0);
        policy_write(q, &b);
        CHECK_STR(a.p, b.p);
        policy_unref(p), policy_unref(q);
        buf_free(&a), buf_free(&b);
    }
}

TEST(policy, a_host_with_secrets_is_looked_into_whatever_else_allows_it)
{
    static const char *const p[] = {"{\"mode\":\"open\",\"inject\":[{\"domain\":\"a.example\",\"secret\":\"s\",\"header\":\"x\"}]}",
                                    "{\"allow\":[\"a.example\",\"0.0.0.0/0\"],\"inject\":[{\"domain\":\"a.example\",\"secret\":\"s\",\"header\":\"x\"}]}"};
    for (size_t i = 0; i < 2; i++) {
        CHECK_INT(ASK(p[i], .addr = PUB, .port = 443), ANSWER_LOOK);
        CHECK_INT(ASK(p[i], .name = "a.example", .addr = PUB, .port = 443), ANSWER_LOOK);
        CHECK_INT(ASK(p[i], .name = "b.example", .addr = PUB, .port = 443), ANSWER_ALLOW);
        CHECK_INT(ASK(p[i], .addr = PUB, .port = 444), ANSWER_ALLOW);
        CHECK(ask(p[i], (struct q){.name = "a.example", .addr = PUB, .port = 443, .proto = PROTO_TLS}).intercept);
    }
}

TEST(policy, a_path_alone)
{
    const char *j = "{\"allow\":[{\"domain\":\"a.example\",\"paths\":[\"=/me\"]}]}";
    CHECK_INT(ASK(j, .name = "a.example", .addr = PUB, .port = 80, .proto = PROTO_HTTP, .method = "GET", .path = "/me"), ANSWER_ALLOW);
    CHECK_INT(ASK(j, .name = "a.example", .addr = PUB, .port = 80, .proto = PROTO_HTTP, .method = "GET", .path = "/me/x"), ANSWER_DENY);
    CHECK_INT(ASK(j, .name = "a.example", .addr = PUB, .port = 80, .proto = PROTO_HTTP, .method = "GET", .path = "/m"), ANSWER_DENY);
    refused("{\"allow\":[{\"domain\":\"a.b\",\"paths\":[\"=me\"]}]}", 0, "paths");
}

TEST(policy, special_names_need_their_own_rule)
{
    CHECK(!resolves("{\"mode\":\"open\"}", "metadata.google.internal"));
    CHECK(!resolves("{\"mode\":\"open\"}", "printer"));
    CHECK(!resolves("{\"allow\":[\"*\"]}", "db.internal"));
    CHECK(resolves("{\"allow\":[\"db.internal\"]}", "db.internal"));
    CHECK(resolves("{\"mode\":\"open\",\"allow\":[\"*.internal\"]}", "db.internal"));
    CHECK(resolves("{\"allow\":[\"*\"]}", "example.org"));
}

TEST(policy, a_proxy_asks_before_it_knows_the_address)
{
    const char *j = "{\"mode\":\"open\",\"deny\":[\"192.0.2.0/24\"]}";
    CHECK_INT(ASK(j, .name = "a.example", .port = 443, .proto = PROTO_TLS), ANSWER_LOOK);
    CHECK_INT(ASK(j, .name = "a.example", .addr = "192.0.2.3", .port = 443, .proto = PROTO_TLS), ANSWER_DENY);
    CHECK_INT(ASK(j, .name = "a.example", .addr = PUB, .port = 443, .proto = PROTO_TLS), ANSWER_ALLOW);
}
TEST_MAIN
