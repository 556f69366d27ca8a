/* Who sees, changes and makes what; names of tenants; scopes. Pure. */
#include "base/buf.h"
#include "core/host/rights.h"
#include "test.h"
#include <string.h>

static const struct caller admin = {.role = ROLE_ADMIN, .tenant = ""},
                           operator_ = {.role = ROLE_OPERATOR, .tenant = ""},
                           operator_of_a = {.role = ROLE_OPERATOR, .tenant = "a"},
                           member = {.role = ROLE_MEMBER, .tenant = "a"},
                           viewer = {.role = ROLE_VIEWER, .tenant = "a"},
                           metrics = {.role = ROLE_METRICS, .tenant = ""},
                           nobody = {.role = ROLE_NONE, .tenant = ""};

TEST(rights, the_table)
{
    static const struct {
        const struct caller *who;
        bool sees_own, sees_other, sees_host, changes_own, changes_other, changes_host, makes;
    } rows[] = {
        {&admin, true, true, true, true, true, true, true},
        {&operator_, true, true, true, false, false, false, false},
        {&operator_of_a, true, true, true, true, false, false, true},
        {&member, true, false, false, true, false, false, true},
        {&viewer, true, false, false, false, false, false, false},
        {&metrics, false, false, false, false, false, false, false},
        {&nobody, false, false, false, false, false, false, false},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const struct caller *w = rows[i].who;
        CHECK_INT(caller_sees(w, "a"), rows[i].sees_own);
        CHECK_INT(caller_sees(w, "b"), rows[i].sees_other);
        CHECK_INT(caller_sees(w, ""), rows[i].sees_host);
        CHECK_INT(caller_changes(w, "a"), rows[i].changes_own);
        CHECK_INT(caller_changes(w, "b"), rows[i].changes_other);
        CHECK_INT(caller_changes(w, ""), rows[i].changes_host);
        CHECK_INT(caller_makes(w), rows[i].makes);
    }
}

/* A key without a tenant that says it is a member would be the operator's equal. */
TEST(rights, no_tenant_is_nobodys)
{
    static const struct caller odd = {.role = ROLE_MEMBER, .tenant = ""};
    CHECK(!caller_sees(&odd, "") && !caller_changes(&odd, "") && !caller_makes(&odd));
}

TEST(rights, names_of_tenants)
{
    char full[FULL_NAME];
    CHECK_STR(full_name("", "data", full), "data");
    CHECK_STR(full_name(NULL, "data", full), "data");
    CHECK_STR(full_name("acme", "data", full), "data@acme");
    CHECK_STR(full_name_tenant(full), "acme");
    CHECK_INT(full_name_len(full), 4);
    CHECK_STR(full_name_tenant("data"), "");
    CHECK(tenant_name_ok("acme") && tenant_name_ok("A.b_c-9"));
    CHECK(!tenant_name_ok("") && !tenant_name_ok("-a") && !tenant_name_ok("a@b") &&
          !tenant_name_ok("a b"));
}

static void *picked(const struct caller *who, bool shared, const char *const *tenants, size_t n)
{
    struct pick p = {.who = who};
    for (size_t i = 0; i < n; i++)
        pick_add(&p, tenants[i], (void *)(uintptr_t)tenants[i]);
    return pick_get(&p, shared);
}

TEST(rights, a_name_is_first_ones_own)
{
    static const char *const all[] = {"b", "", "a", "c"}, *const others[] = {"b", "c"},
                             *const one[] = {"b"};
    CHECK_STR(picked(&member, true, all, 4), "a");
    CHECK_STR(picked(&member, true, all, 2), ""); /* what all share */
    CHECK(!picked(&member, false, all, 2));       /* where nothing is shared */
    CHECK(!picked(&member, true, one, 1));        /* another's is not there */
    CHECK_STR(picked(&admin, true, all, 4), "");
    CHECK_STR(picked(&admin, false, one, 1), "b"); /* the only one */
    CHECK(!picked(&admin, false, others, 2));      /* whose? */
}

TEST(rights, scopes)
{
    struct scope s;
    struct err e;
    auto_buf out = {0};
    struct jw w;
    CHECK(!scope_parse_text(NULL, &s, &e) && !scope_any(&s));
    CHECK(scope_parse_text("{\"isolation\":[\"paper\"]}", &s, &e) && e.code == E_INVALID);
    CHECK(scope_parse_text("{\"templates\":\"base\"}", &s, &e) && e.code == E_INVALID);
    CHECK(scope_parse_text("{\"network\":{\"mode\":\"ajar\"}}", &s, &e) && e.code == E_INVALID);
    CHECK(scope_parse_text("{\"everything\":true}", &s, &e) && e.code == E_INVALID);
    CHECK(!scope_parse_text(
        "{\"templates\":[\"base\"],\"isolation\":[\"container\"],\"memory_mib\":256,\"keys\":true}",
        &s, &e));
    CHECK(scope_limits(&s) && s.keys);
    jw_init(&w, &out);
    scope_put(&w, &s);
    CHECK_STR(
        out.p,
        "{\"templates\":[\"base\"],\"isolation\":[\"container\"],\"memory_mib\":256,\"keys\":true}");
    struct caller who = {.role = ROLE_MEMBER, .tenant = "a", .scope = &s};
    CHECK(!caller_may_start(&who, "base", "t1", "container", 1000, 256, 999999, &e));
    CHECK(caller_may_start(&who, "other", "t2", "container", 1000, 256, 1, &e) &&
          e.code == E_FORBIDDEN);
    CHECK(caller_may_start(&who, "base", "t1", "vm", 1000, 256, 1, &e) && strstr(e.msg, "'vm'"));
    CHECK(caller_may_start(&who, "base", "t1", "container", 1000, 257, 1, &e) &&
          strstr(e.msg, "257") && strstr(e.msg, "(256)"));
    scope_free(&s);
}

TEST_MAIN
