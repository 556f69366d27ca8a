#include "core/preset.h"
#include "test.h"

static int line(struct preset *p, const char *text)
{
    char z[512];
    snprintf(z, sizeof z, "%s", text);
    return preset_line(p, z);
}

static void clear(struct preset *p)
{
    free(p->rule);
    kv_free(&p->env);
}

TEST(preset, addresses_become_rules)
{
    struct preset p = {.name = "pip"};
    CHECK_INT(line(&p, "allow https://Index.Example.org/simple"), 0);
    CHECK_INT(line(&p, "allow http://mirror.example.org:8080/debian/"), 0);
    CHECK_INT(line(&p, "allow https://192.0.2.7/x"), 0);
    CHECK_INT(line(&p, "allow https://[2001:db8::1]:8443/"), 0);
    CHECK_INT(line(&p, "allow https://index.example.org./again"), 0);
    CHECK_INT(p.nrules, 4);
    CHECK_STR(p.rule[0].host, "index.example.org");
    CHECK_INT(p.rule[0].port, 443);
    CHECK_INT(p.rule[1].port, 8080);
    CHECK(p.rule[2].address);
    CHECK_STR(p.rule[3].host, "2001:db8::1");
    CHECK_INT(p.rule[3].port, 8443);
    struct buf b = {0};
    struct jw w;
    jw_init(&w, &b);
    jw_arr(&w);
    preset_put_rules(&w, &p);
    jw_end(&w);
    CHECK(strstr(b.p, "{\"domain\":\"index.example.org\",\"ports\":[443],\"methods\":[\"GET\",\"HEAD\"],\"id\":\"preset-pip\"}"));
    CHECK(strstr(b.p, "{\"cidr\":\"192.0.2.7\",\"ports\":[443],\"id\":\"preset-pip\"}"));
    buf_free(&b);
    clear(&p);
}

TEST(preset, nonsense_is_refused)
{
    static const char *const bad[] = {"", "allow", "allow ftp://x/", "allow https://", "allow https:///x", "allow https://a b/", "allow https://x:0/", "allow https://x:99999/",
                                      "allow https://user@host/", "allow https://127.1/", "env", "env A", "env  x", "env A-B x", "say hi"};
    struct preset p = {.name = "pip"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        if (!line(&p, bad[i]))
            printf("# taken: %s\n", bad[i]);
        CHECK_INT(p.nrules, 0);
        CHECK_INT(p.env.n, 0);
    }
}

TEST(preset, environment)
{
    struct preset p = {.name = "npm"};
    CHECK_INT(line(&p, "env npm_config_registry https://r.example.org/"), 0);
    CHECK_STR(kv_get(&p.env, "npm_config_registry"), "https://r.example.org/");
    clear(&p);
}
TEST_MAIN
