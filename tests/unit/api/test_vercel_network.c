#include "api/vercel/network.h"
#include "gate/policy.h"
#include "test.h"

static void is(const char *in, const char *want)
{
    struct err e = {0};
    auto_json j = json_parse(in, strlen(in), &e);
    auto_buf out = {0};
    CHECK(j && vercel_network_is(j));
    if (vercel_network(j, &out, &e))
        printf("# %s: %s\n", in, e.msg);
    CHECK_STR(out.p, want);
    if (!strstr(want, "\"value\"")) { /* literal values become secrets later */
        struct policy *p = policy_parse(out.p, out.n, 0, &e);
        if (!p)
            printf("# %s: %s\n", out.p, e.msg);
        CHECK(p);
        policy_unref(p);
    }
}
static void refused(const char *in, enum err_code code, const char *words)
{
    struct err e = {0};
    auto_json j = json_parse(in, strlen(in), &e);
    auto_buf out = {0};
    CHECK(j && vercel_network_is(j));
    int rc = vercel_network(j, &out, &e);
    if (!rc || !strstr(e.msg, words) || e.code != code)
        printf("# %s: %s\n", in, rc ? e.msg : out.p);
    CHECK(rc && e.code == code && strstr(e.msg, words));
}

TEST(vercel_network, the_two_words)
{
    is("\"allow-all\"", "{\"mode\":\"open\"}");
    is("{\"mode\":\"allow-all\"}", "{\"mode\":\"open\"}");
    is("\"deny-all\"", "{\"mode\":\"none\"}");
    is("{\"mode\":\"deny-all\"}", "{\"mode\":\"none\"}");
    refused("\"open-all\"", E_INVALID, "allow-all or deny-all");
    refused("{\"mode\":\"deny-all\",\"allow\":[\"a.b\"]}", E_INVALID, "cannot be combined");
}

TEST(vercel_network, lists_and_ranges)
{
    is("{\"allow\":[\"a.example\",\"*.b.example\"],\"subnets\":{\"allow\":[\"192.0.2.0/24\"],\"deny\":[\"10.0.0.0/8\"]}}",
       "{\"mode\":\"allow\",\"allow\":[\"a.example\",\"*.b.example\",{\"cidr\":\"192.0.2.0/24\"}],\"deny\":[{\"cidr\":\"10.0.0.0/8\",\"final\":true}]}");
    is("{\"subnets\":{\"deny\":[\"192.0.2.0/24\"]}}", "{\"mode\":\"allow\",\"allow\":[],\"deny\":[{\"cidr\":\"192.0.2.0/24\",\"final\":true}]}");
    is("{\"mode\":\"custom\",\"allow\":{\"a.example\":[],\"*\":[]}}", "{\"mode\":\"allow\",\"allow\":[\"a.example\",\"*\"],\"deny\":[],\"inject\":[]}");
}

TEST(vercel_network, headers_are_put_in)
{
    is("{\"allow\":{\"api.example\":[{\"match\":{\"path\":{\"startsWith\":\"/v1\"},\"method\":[\"POST\",\"PUT\"]},\"transform\":[{\"headers\":{\"authorization\":\"Bearer s\",\"x-a\":\"b\"}}]},"
       "{\"match\":{\"path\":{\"exact\":\"/me\"}},\"transform\":[{\"headers\":{\"x-b\":\"c\"}}]}]}}",
       "{\"mode\":\"allow\",\"allow\":[\"api.example\"],\"deny\":[],\"inject\":["
       "{\"domain\":\"api.example\",\"methods\":[\"POST\",\"PUT\"],\"paths\":[\"/v1*\"],\"header\":\"authorization\",\"value\":\"Bearer s\"},"
       "{\"domain\":\"api.example\",\"methods\":[\"POST\",\"PUT\"],\"paths\":[\"/v1*\"],\"header\":\"x-a\",\"value\":\"b\"},"
       "{\"domain\":\"api.example\",\"paths\":[\"=/me\"],\"header\":\"x-b\",\"value\":\"c\"}]}");
}

TEST(vercel_network, what_has_no_counterpart_is_refused)
{
#define RULE(r) "{\"allow\":{\"a.example\":[" r "]}}"
    refused(RULE("{\"forwardURL\":\"https://p.example\"}"), E_UNSUPPORTED, "cannot be forwarded");
    refused(RULE("{\"response\":{\"statusCode\":200}}"), E_UNSUPPORTED, "allow.a.example[0]");
    refused(RULE("{\"match\":{\"path\":{\"regex\":\"^/\"}},\"transform\":[]}"), E_UNSUPPORTED, "not by regex");
    refused(RULE("{\"match\":{\"headers\":[{}]},\"transform\":[]}"), E_UNSUPPORTED, "path and method only");
    refused(RULE("{\"match\":{\"queryString\":[{}]},\"transform\":[]}"), E_UNSUPPORTED, "path and method only");
    refused(RULE("{\"match\":{\"path\":{}},\"transform\":[]}"), E_INVALID, "exactly one");
    refused(RULE("{}"), E_INVALID, "transform");
    refused(RULE("7"), E_INVALID, "not an object");
    refused(RULE("{\"transform\":[{\"headers\":{\"a\":7}}]}"), E_INVALID, "headers.a");
    refused("{\"allow\":{\"a.example\":7}}", E_INVALID, "list of rules");
    refused("{\"subnets\":{\"permit\":[]}}", E_INVALID, "permit");
    refused("{\"subnets\":{},\"allow\":7}", E_INVALID, "a map from domain");
}

TEST(vercel_network, our_own_form_is_left_alone)
{
    static const char *const ours[] = {"{}", "{\"mode\":\"open\"}", "{\"allow\":[\"a.example\"]}", "{\"allow\":[{\"domain\":\"a.example\"}],\"deny\":[]}", "[]", "7"};
    for (size_t i = 0; i < sizeof ours / sizeof *ours; i++) {
        struct err e = {0};
        auto_json j = json_parse(ours[i], strlen(ours[i]), &e);
        CHECK(j && !vercel_network_is(j));
    }
}

TEST_MAIN
