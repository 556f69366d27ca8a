#define TEST_SECONDS 180
#include "driver.h"

/* Waits until `want` (lines "type name") has been seen in this order, other events between allowed. */
static void expect(struct host *h, uint32_t id, struct result *r, const char *const *want)
{
    struct rec at = {NULL, 0};
    size_t off = 0;
    struct field f;
    while (*want) {
        at = (struct rec){(unsigned char *)r->events.p + off, r->events.n - off};
        if (!r->events.n || !rec_next(&at, &f)) {
            if (!host_step(h, id, r, 20000)) {
                printf("# never seen: %s\n", *want);
                exit(1);
            }
            continue;
        }
        off += 5 + f.v.n;
        struct str name = {"", 0};
        (void)rec_get(field_rec(f), T_NAME, &name);
        char line[300];
        (void)snprintf(line, sizeof line, "%c %.*s", (int)rec_u64_or(field_rec(f), T_TYPE, '?'), (int)name.n, name.p);
        if (!strcmp(line, *want))
            want++;
    }
}

static uint32_t start(struct host *h, const char *path, uint64_t flags, struct result *r)
{
    struct buf b = {0};
    rec_put_str(&b, T_PATH, path);
    rec_put_u64(&b, T_FLAGS, flags);
    uint32_t id = host_req(h, OP_WATCH, &b);
    while (!r->started && !r->over)
        CHECK(host_step(h, id, r, 20000));
    return id;
}

/* Runs a command while keeping the events of the watch. */
static void during(struct host *h, uint32_t id, struct result *w, const char *cmd)
{
    struct result r = {0};
    struct buf b = sh(cmd);
    uint32_t rid = host_req(h, OP_START, &b);
    while (!r.over) {
        struct frame f;
        CHECK(host_frame(h, &f, 20000));
        if (f.stream == rid)
            take_frame(h, &r, &f);
        else if (f.stream == id)
            take_frame(h, w, &f);
    }
    CHECK_INT(r.status, 0);
    result_free(&r);
}

TEST(watch, recursive_with_later_directories)
{
    struct host h;
    struct result w = {0}, r = {0};
    host_start(&h);
    host_sh(&h, "mkdir -p w/old/deep", &r);
    result_free(&r);
    uint32_t id = start(&h, "w", WATCH_RECURSIVE, &w);
    during(&h, id, &w, "echo 1 > w/f; echo 2 > w/old/deep/g; mkdir -p w/n/m/o; echo 3 > w/n/m/o/p; mv w/old w/moved; echo 4 > w/moved/deep/q; chmod 600 w/f; rm w/f");
    expect(&h, id, &w, (const char *const[]){"c f", "w f", "c old/deep/g", "c n", NULL});
    expect(&h, id, &w, (const char *const[]){"c n/m", "c n/m/o", "c n/m/o/p", NULL});
    expect(&h, id, &w, (const char *const[]){"r old", "c moved", "c moved/deep/q", "a f", "d f", NULL});
    /* sequence numbers have no gaps */
    uint64_t seq = 0;
    struct field f;
    for (struct rec at = {(unsigned char *)w.events.p, w.events.n}; rec_next(&at, &f);)
        CHECK_INT(rec_u64_or(field_rec(f), T_SEQ, 0), ++seq);
    host_send(&h, FR_CANCEL, 0, id, NULL, 0);
    host_wait(&h, id, &w);
    CHECK_INT(w.code, 0);
    result_free(&w);
    host_stop(&h);
}

TEST(watch, directory_moved_in_is_watched_and_moved_out_is_not)
{
    struct host h;
    struct result w = {0}, r = {0};
    host_start(&h);
    host_sh(&h, "mkdir -p w out/sub; touch out/sub/x", &r);
    result_free(&r);
    uint32_t id = start(&h, "w", WATCH_RECURSIVE | WATCH_ENTRY, &w);
    during(&h, id, &w, "mv out w/in; echo > w/in/sub/y");
    expect(&h, id, &w, (const char *const[]){"c in", "c in/sub", "c in/sub/y", NULL});
    during(&h, id, &w, "mv w/in away; echo > away/sub/z; touch w/end");
    expect(&h, id, &w, (const char *const[]){"c in", "r in", "c end", NULL});
    struct field f;
    struct str s;
    for (struct rec at = {(unsigned char *)w.events.p, w.events.n}; rec_next(&at, &f);)
        CHECK(rec_get(field_rec(f), T_NAME, &s) && !memmem(s.p, s.n, "z", 1));
    result_free(&w);
    host_stop(&h);
}

TEST(watch, not_recursive_is_one_level_and_errors_are_typed)
{
    struct host h;
    struct result w = {0}, r = {0};
    host_start(&h);
    host_sh(&h, "mkdir -p w/d", &r);
    result_free(&r);
    uint32_t id = start(&h, "w", 0, &w);
    during(&h, id, &w, "touch w/d/x; touch w/y");
    expect(&h, id, &w, (const char *const[]){"c y", NULL});
    struct field f;
    struct str s;
    for (struct rec at = {(unsigned char *)w.events.p, w.events.n}; rec_next(&at, &f);)
        CHECK(rec_get(field_rec(f), T_NAME, &s) && !memchr(s.p, 'x', s.n));
    start(&h, "missing", 0, &r);
    CHECK_INT(r.code, E_NOT_FOUND);
    result_free(&w), result_free(&r);
    host_stop(&h);
}

TEST(watch, a_storm_overflows_or_arrives_but_does_not_stall)
{
    struct host h;
    struct result w = {0};
    host_start(&h);
    struct result r = {0};
    host_sh(&h, "mkdir w", &r);
    result_free(&r);
    uint32_t id = start(&h, "w", WATCH_RECURSIVE, &w);
    struct buf b = sh("cd w; seq 1 30000 | xargs touch; touch last");
    uint32_t rid = host_req(&h, OP_START, &b);
    struct timespec ts = {.tv_nsec = 500 * NS_PER_MS};
    nanosleep(&ts, NULL); /* nobody reads: back-pressure */
    while (!r.over) {
        struct frame f;
        CHECK(host_frame(&h, &f, 10000));
        take_frame(&h, f.stream == rid ? &r : &w, &f);
    }
    CHECK_INT(r.status, 0);
    bool over = false, last = false;
    struct field f;
    struct str s;
    for (size_t off = 0;;) {
        struct rec at = {(unsigned char *)w.events.p + off, w.events.n - off};
        while (w.events.n && rec_next(&at, &f)) {
            off += 5 + f.v.n;
            over |= rec_u64_or(field_rec(f), T_TYPE, 0) == 'o';
            last |= rec_get(field_rec(f), T_NAME, &s) && str_eqz(s, "last");
        }
        if (over || last)
            break;
        CHECK(host_step(&h, id, &w, 30000));
    }
    printf("# storm: %s\n", over ? "overflow reported" : "all arrived");
    host_send(&h, FR_CANCEL, 0, id, NULL, 0); /* what is still queued would stand before the answer to the shutdown */
    host_wait(&h, id, &w);
    result_free(&w), result_free(&r);
    host_stop(&h);
}
TEST_MAIN
