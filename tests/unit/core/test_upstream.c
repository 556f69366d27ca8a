#include "core/host/upstream.h"
#include "test.h"

static void is(const char *url, const char *addr, const char *auth)
{
    struct upstream u;
    struct err e = {0};
    if (upstream_parse(url, &u, &e))
        printf("# %s: %s\n", url, e.msg);
    CHECK_STR(u.addr, addr);
    CHECK(auth ? u.auth && !strcmp(u.auth, auth) : !u.auth);
    upstream_free(&u);
}
static void refused(const char *url, const char *words)
{
    struct upstream u;
    struct err e = {0};
    CHECK(upstream_parse(url, &u, &e) == -1 && strstr(e.msg, words));
}

TEST(upstream, proxies_as_hosts_name_them)
{
    is("", "", NULL);
    is("http://192.0.2.1:3128/", "192.0.2.1:3128", NULL);
    is("192.0.2.1:3128", "192.0.2.1:3128", NULL);
    is("http://192.0.2.1", "192.0.2.1:80", NULL);
    is("http://[2001:db8::1]:8080", "[2001:db8::1]:8080", NULL);
    is("http://me:p%40ss@192.0.2.1:3128", "192.0.2.1:3128", "Basic bWU6cEBzcw==");
    refused("https://192.0.2.1:3128", "http://");
    refused("socks5://192.0.2.1:1080", "http://");
    refused("http://192.0.2.1:0", "port");
    refused("http://:3128", "host");
    refused("http://no-such-host.invalid:3128", "no-such-host.invalid");
}

TEST_MAIN
