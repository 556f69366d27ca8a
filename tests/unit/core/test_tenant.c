#include "core/host/tenant.h"
#include "test.h"

static void refused(const char *text, const char *words)
{
    struct tenants t;
    struct err e = {0};
    CHECK(tenants_parse(text, &t, &e) == -1);
    if (!strstr(e.msg, words))
        printf("# %s: %s\n", text, e.msg);
    CHECK(strstr(e.msg, words) && strstr(e.msg, "HUTCH_TENANTS") && !t.n && !t.at);
}

TEST(tenant, its_own_entry_else_everybodys)
{
    struct tenants t;
    struct err e = {0};
    CHECK(!tenants_parse(NULL, &t, &e) && !t.n && !tenant_find(&t, "acme"));
    CHECK(!tenants_parse("{\"*\":{\"connections\":9},\"acme\":{\"connections\":2,\"bytes_per_second\":3,\"bytes_per_day\":4,\"held_bytes\":6,\"running\":7,\"memory_mib\":8,"
                         "\"ceiling\":{\"allow\":[\"example.org\"],\"limits\":{\"bytes\":5}}}}", &t, &e));
    const struct tenant *a = tenant_find(&t, "acme"), *other = tenant_find(&t, "other");
    CHECK(a && a->limits.connections == 2 && a->limits.bytes_per_second == 3 && a->limits.bytes_per_day == 4 && a->held_bytes == 6 && a->running == 7 && a->memory_mib == 8 && strstr(a->ceiling, "example.org"));
    CHECK(other && other->limits.connections == 9 && !other->ceiling);
    CHECK(!tenant_find(&t, "") && !tenant_find(&t, NULL)); /* the operator's own have none */
    tenants_free(&t);
}

TEST(tenant, a_wrong_setting_says_where)
{
    refused("[]", "");
    refused("{\"a\":[]}", "a: not an object");
    refused("{\"a\":{\"conections\":1}}", "conections");
    refused("{\"a\":{\"connections\":-1}}", "connections");
    refused("{\"a\":{\"ceiling\":{\"mode\":\"wide\"}}}", "mode");
    refused("{\"a\":{\"ceiling\":7}}", "ceiling");
    refused("{\"a\":{\"ceiling\":{\"mode\":\"open\",\"private\":[\"10.0.0.0/8\"]}}}", "whole host");
    refused("{\"a\":{\"ceiling\":{\"inject\":[{\"domain\":\"a.b\",\"secret\":\"s\",\"header\":\"x\"}]}}}", "ceiling");
}

TEST_MAIN
