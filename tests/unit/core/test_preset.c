#include "core/network/preset.h"
#include "test.h"

static int line(struct preset *p, const char *text)
{
    char z[512];
    snprintf(z, sizeof z, "%s", text);
    return preset_line(p, z);
}

static void clear(struct preset *p) { preset_clear(p); }

static const char *hosts(const struct preset *p)
{
    static char z[1024];
    size_t n = 0;
    z[0] = 0;
    for (size_t i = 0; i < p->nrules; i++)
        n += (size_t)snprintf(z + n, sizeof z - n, "%s%s:%u", i ? " " : "", p->rule[i].host, p->rule[i].port);
    return z;
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
    CHECK_INT(line(&p, "source built in"), 0);
    CHECK_STR(p.source, "built in");
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        if (!line(&p, bad[i]))
            printf("# taken: %s\n", bad[i]);
        CHECK_INT(p.nrules, 0);
        CHECK_INT(p.env.n, 0);
    }
}

/* An index says where its files are by links to them, and by nothing else. */
TEST(preset, files_of_an_index)
{
    struct preset p = {.name = "pip"};
    CHECK_INT(line(&p, "allow http://index.test:8080/simple"), 0);
    CHECK_INT(line(&p, "html <a href=\"https://files.test/pip-1.0.tar.gz\" data-yanked=\"See https://evil.test/pip-1.0.tar.gz\">x</a><a hr"), 0);
    CHECK_INT(line(&p, "html ef=\"https://files.test/pip-1.1.tar.gz\">x</a><a href=//more.test/pip-2.zip>x</a><a href=../pip-3.zip>x</a><a href=https://evil.test/>about</a>"), 0);
    CHECK_INT(line(&p, "html <a href='https://files.test@evil.test/pip-1.zip'>x</a><a href='https://e&#118;il.test/pip-1.zip'>x</a>"), 0);
    CHECK_STR(hosts(&p), "index.test:8080");
    CHECK_INT(line(&p, "page http://moved.test/simple/pip/"), 0);
    CHECK_STR(hosts(&p), "index.test:8080 files.test:443 more.test:80 moved.test:80");
    CHECK_STR(p.doubt, "");
    CHECK_INT(line(&p, "html <a href=https://evil.test/>about</a>"), 0);
    CHECK_INT(line(&p, "page http://other.test/simple/pip/"), 0); /* no index's, or none at all: said, not guessed */
    CHECK_STR(p.doubt, "http://other.test/simple/pip/");
    CHECK_INT(line(&p, "html <a href=https://second.test/pip-1.zip>x</a>"), 0); /* a page that was not read to its end */
    CHECK_STR(hosts(&p), "index.test:8080 files.test:443 more.test:80 moved.test:80");
    clear(&p);
    for (int i = 0; i < 100; i++) {
        char text[128];
        snprintf(text, sizeof text, "html <a href=https://h%d.test/pip-1.zip>x</a>", i);
        CHECK_INT(line(&p, text), 0);
    }
    CHECK_INT(line(&p, "page https://index.test/"), 0);
    CHECK_INT(p.nrules, PRESET_FILES_MAX);
    clear(&p);
}

TEST(preset, environment)
{
    struct preset p = {.name = "npm"};
    CHECK_INT(line(&p, "env npm_config_registry https://r.example.org/"), 0);
    CHECK_STR(kv_get(&p.env, "npm_config_registry"), "https://r.example.org/");
    clear(&p);
}
TEST_MAIN
