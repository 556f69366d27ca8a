/* The parts of the agent that need no agent: ring, timers, users, init helpers. */
#include "base/clock.h"
#include "driver.h"
#include "guest/init_vm.h"
#include "guest/loop.h"
#include "guest/path.h"
#include "guest/ring.h"
#include "guest/users.h"

static void add(struct ring *r, uint8_t chan, const char *p, size_t n)
{
    struct iovec v[2];
    CHECK(ring_room(r, chan, UINT64_MAX) >= n);
    int k = ring_space(r, n, v);
    CHECK(k && v[0].iov_len + (k > 1 ? v[1].iov_len : 0) == n);
    memcpy(v[0].iov_base, p, v[0].iov_len);
    if (k > 1)
        memcpy(v[1].iov_base, p + v[0].iov_len, v[1].iov_len);
    ring_commit(r, chan, n);
}

TEST(ring, keeps_channels_in_order)
{
    struct ring r = {0};
    const unsigned char *p;
    uint64_t pos = 0, seg = 0;
    uint8_t chan;
    add(&r, 1, "ab", 2), add(&r, 1, "c", 1), add(&r, 2, "de", 2), add(&r, 1, "f", 1);
    CHECK_INT(ring_peek(&r, &pos, &seg, &p, &chan), 3);
    CHECK(chan == 1 && !memcmp(p, "abc", 3));
    pos += 3;
    CHECK_INT(ring_peek(&r, &pos, &seg, &p, &chan), 2);
    CHECK(chan == 2 && !memcmp(p, "de", 2));
    pos += 2;
    ring_seal(&r);
    CHECK_INT(ring_peek(&r, &pos, &seg, &p, &chan), 1);
    CHECK(chan == 1 && *p == 'f');
    pos = 0, seg = 0;
    CHECK_INT(ring_peek(&r, &pos, &seg, &p, &chan), 3);
    ring_free(&r);
}

TEST(ring, random_writes_against_a_model)
{
    static char model[8 << 20], chans[8 << 20];
    struct ring r = {0};
    unsigned seed = 7;
    uint64_t n = 0, reader = 0, hint = 0;
    while (n < sizeof model - 70000) {
        char b[65536];
        size_t k = (size_t)rand_r(&seed) % (rand_r(&seed) % 4 ? 40 : 60000);
        uint8_t c = (uint8_t)(1 + rand_r(&seed) % 2);
        size_t room = ring_room(&r, c, reader);
        if (k > room)
            k = room;
        for (size_t i = 0; i < k; i++)
            model[n + i] = b[i] = (char)rand_r(&seed), chans[n + i] = (char)c;
        if (k)
            add(&r, c, b, k);
        n += k;
        CHECK_INT(r.head, n);
        CHECK(r.tail <= reader && r.head - r.tail <= RING_CAP);
        for (int i = rand_r(&seed) % 3; i > 0 && reader < n; i--) { /* the holding listener moves on */
            const unsigned char *p;
            uint8_t got;
            uint64_t pos = reader;
            size_t m = ring_peek(&r, &pos, &hint, &p, &got);
            CHECK_INT(pos, reader);
            CHECK(m && !memcmp(p, model + reader, m));
            for (size_t j = 0; j < m; j++)
                CHECK(chans[reader + j] == (char)got);
            reader += m;
        }
    }
    ring_seal(&r);
    ring_free(&r);
}

TEST(ring, many_channel_changes_are_bounded)
{
    struct ring r = {0};
    for (int i = 0; i < 20000; i++)
        add(&r, (uint8_t)(1 + i % 2), "x", 1);
    CHECK(r.seg_head - r.seg_tail <= RING_SEG_MAX);
    CHECK_INT(r.head, 20000);
    CHECK_INT(r.tail, 20000 - RING_SEG_MAX);
    CHECK_INT(ring_room(&r, 1, r.tail), 0); /* a listener at the tail holds it */
    CHECK(ring_room(&r, 2, r.tail) > 0);    /* no new change of channel */
    ring_free(&r);
}

static int fired[64], nfired;
struct t { struct timer t; int id; };
static void on(struct agent *a, struct timer *t)
{
    (void)a;
    fired[nfired++] = container_of(t, struct t, t)->id;
}

TEST(loop, timers_fire_in_order_and_can_be_stopped)
{
    struct loop l;
    struct t t[50] = {0};
    CHECK(!loop_init(&l));
    int64_t now = clock_mono();
    for (int i = 0; i < 50; i++) {
        t[i].id = i * 37 % 50;
        t[i].t.fn = on;
        timer_start(&l, &t[i].t, now - 1000 + t[i].id);
    }
    for (int i = 0; i < 50; i++)
        if (t[i].id % 3 == 0)
            timer_stop(&l, &t[i].t);
    CHECK_INT(loop_wait_ms(&l, false), 0);
    loop_timers(&l, NULL);
    CHECK_INT(nfired, 33);
    for (int i = 1; i < nfired; i++)
        CHECK(fired[i] > fired[i - 1]);
    CHECK_INT(loop_wait_ms(&l, false), -1);
    loop_fini(&l);
}

TEST(path, absolute_forms)
{
    struct user u = {1000, 1000, "user", "/home/user", "/bin/sh"};
    static const struct { const char *in, *want; } t[] = {
        {"/", "/"}, {"//", "/"}, {"/.", "/"}, {"/a//b/./c/", "/a/b/c"}, {"x", "/home/user/x"}, {"~", "/home/user"},
        {"~/y", "/home/user/y"}, {".", "/home/user"}, {"~x", "/home/user/~x"}, {"/a/../b", "/b"}, {"...", "/home/user/..."},
        {"..", "/home"}, {"/..", "/"}, {"/../../x", "/x"}, {"/a/b/../../..", "/"}, {"../../../etc/./x/..", "/etc"}, {"/a/..b", "/a/..b"},
    };
    for (size_t i = 0; i < sizeof t / sizeof *t; i++) {
        char *s = path_absolute(&u, str_of(t[i].in), "path", NULL);
        CHECK_STR(s, t[i].want);
        free(s);
    }
}

TEST(users, files_are_parsed_and_reread)
{
    if (geteuid() || unshare(CLONE_NEWNS))
        SKIP("needs root");
    driver_etc();
    struct users us = {0};
    struct user u;
    struct err e = {0};
    uint32_t g[USER_GROUPS_MAX], gid;
    CHECK(!user_find(&us, S("user"), &u, &e));
    CHECK(u.uid == 1000 && !strcmp(u.home, "/tmp/home"));
    CHECK_INT(user_groups(&us, &u, g), 2);
    CHECK_INT(g[1], 1234);
    CHECK(!user_find(&us, S("1000"), &u, &e) && !strcmp(u.name, "user"));
    CHECK(!user_find(&us, S("4711"), &u, &e) && u.uid == 4711 && !strcmp(u.home, "/"));
    CHECK(user_find(&us, S("broken line"), &u, &e) && e.code == E_NOT_FOUND);
    CHECK(group_find(&us, "extra", &gid) && gid == 1234);
    FILE *f = fopen("/etc/passwd", "a");
    fputs("late:x:5:6:::\n", f);
    fclose(f);
    CHECK(!user_find(&us, S("late"), &u, &e));
    CHECK(u.uid == 5 && u.gid == 6 && !strcmp(u.home, "/") && !strcmp(u.shell, "/bin/sh"));
    unlink("/etc/passwd"), unlink("/etc/group");
    CHECK(!user_find(&us, S("root"), &u, &e) && u.uid == 0);
    users_free(&us);
}

TEST(init, cmdline_values_and_port_names)
{
    char v[16], dir[] = "/tmp/portsXXXXXX", path[300];
    CHECK_STR(init_cmdline_value("console=ttyS0 panic=-1 quiet\n", "panic", v, sizeof v), "-1");
    CHECK_STR(init_cmdline_value("panic=5", "panic", v, sizeof v), "5");
    CHECK(!init_cmdline_value("nopanic=5 panicx=3", "panic", v, sizeof v));
    CHECK(mkdtemp(dir));
    for (int i = 0; i < 2; i++) {
        snprintf(path, sizeof path, "%s/vport0p%d", dir, i + 1);
        mkdir(path, 0755);
        strcat(path, "/name");
        FILE *f = fopen(path, "w");
        fputs(i ? "agent\n" : "bulk\n", f);
        fclose(f);
    }
    CHECK(!init_find_port(dir, dir, "agent", path, sizeof path));
    CHECK_STR(strrchr(path, '/'), "/vport0p2");
    CHECK(init_find_port(dir, dir, "nope", path, sizeof path));
    snprintf(path, sizeof path, "rm -r %s", dir);
    CHECK(!system(path));
    struct err e = {0};
    CHECK(!init_load_modules("/does/not/exist", "", &e));
}
TEST_MAIN
