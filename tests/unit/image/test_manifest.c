/* Template manifests: round trip, damage, publishing, scanning, cleaning. */
#include "image/manifest.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/cleanup.h"
#include "test.h"
#include <fcntl.h>
#include <sys/stat.h>

static struct manifest sample(void)
{
    struct manifest m = {.source = MANIFEST_RECIPE, .size_bytes = 1ull << 31, .disk_min_mib = 600};
    id_make('t', m.id);
    id_make('t', m.parent);
    (void)snprintf(m.name, sizeof m.name, "my-template");
    clock_rfc3339(1700000000 * NS_PER_S, m.created);
    memset(m.rootfs_sha256, 'a', 64);
    manifest_add_env(&m, "PATH=/bin");
    manifest_add_env(&m, "TEXT=line\nbreak \"q\" caf\xc3\xa9");
    manifest_set(&m.user, "user");
    manifest_set(&m.workdir, "/app");
    manifest_set(&m.start, "python3 -m http.server");
    manifest_set(&m.ready, NULL);
    manifest_set(&m.kernels, "python javascript");
    manifest_set(&m.packages, "520 packages");
    return m;
}

static int tmp_dir(char path[32])
{
    (void)snprintf(path, 32, "/tmp/hutch-man-XXXXXX");
    CHECK(mkdtemp(path));
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    CHECK(fd >= 0);
    return fd;
}

static void tmp_drop(const char *path, int fd)
{
    char cmd[64];
    (void)snprintf(cmd, sizeof cmd, "rm -rf %s", path);
    CHECK(system(cmd) == 0);
    close(fd);
}

static void put(int dir, const char *id, const char *suffix, const char *file, const char *text)
{
    char path[64];
    (void)snprintf(path, sizeof path, "%s%s", id, suffix);
    (void)mkdirat(dir, path, 0755);
    if (!file)
        return;
    (void)snprintf(path, sizeof path, "%s%s/%s", id, suffix, file);
    int fd = openat(dir, path, O_WRONLY | O_CREAT | O_TRUNC, 0644);
    CHECK(fd >= 0 && fd_write_all(fd, text, strlen(text)));
    close(fd);
}

TEST(manifest, round_trip)
{
    struct manifest m = sample(), back;
    struct err e = {0};
    auto_buf text = {0}, again = {0};
    manifest_format(&m, &text);
    CHECK_INT(manifest_parse(text.p, text.n, &back, &e), 0);
    CHECK_STR(back.id, m.id);
    CHECK_STR(back.parent, m.parent);
    CHECK_INT(back.source, MANIFEST_RECIPE);
    CHECK_INT(back.size_bytes, m.size_bytes);
    CHECK_INT(back.nenv, 2);
    CHECK_STR(back.env[1], m.env[1]);
    CHECK_STR(back.ready, "");
    CHECK_STR(back.kernels, "python javascript");
    manifest_format(&back, &again);
    CHECK_STR(again.p, text.p);
    manifest_fini(&m), manifest_fini(&back);
}

/* Cut anywhere, or with any byte changed, it is refused or still a valid one: no crash, no half result. */
TEST(manifest, survives_damage)
{
    struct manifest m = sample(), back;
    struct err e;
    auto_buf text = {0};
    manifest_format(&m, &text);
    for (size_t i = 0; i < text.n - 2; i++)
        CHECK_INT(manifest_parse(text.p, i, &back, &e), -1);
    for (size_t i = 0; i < text.n; i++) {
        char old = text.p[i];
        text.p[i] = (char)(old ^ 0x15);
        if (manifest_parse(text.p, text.n, &back, &e) == 0) {
            CHECK(id_ok(str_of(back.id)) && name_ok(str_of(back.name)));
            manifest_fini(&back);
        }
        text.p[i] = old;
    }
    manifest_fini(&m);
}

TEST(manifest, refuses_wrong_fields)
{
    static const char *const swap[][2] = {
        {"\"version\":1", "\"version\":2"},          {"\"source\":\"recipe\"", "\"source\":\"magic\""}, {"\"name\":\"my-template\"", "\"name\":\"../../etc\""},
        {"2023-11-14T", "2023-11-14 "},              {"\"disk_min_mib\":600", "\"disk_min_mib\":-1"},   {"\"size_bytes\":2147483648", "\"size_bytes\":0"},
        {"\"env\":[\"PATH=/bin\"", "\"env\":[\"=x\""}, {"\"user\":\"user\"", "\"user\":7"},             {"\"user\":\"user\"", "\"extra\":\"user\""},
        {"aaaaaaaa\"", "aaaaaaaA\""},                {"{\"version\"", "[{\"version\""},                 {"\"workdir\":\"/app\",", ""},
    };
    struct manifest m = sample(), back;
    auto_buf text = {0};
    manifest_format(&m, &text);
    for (size_t i = 0; i < sizeof swap / sizeof *swap; i++) {
        struct err e = {0};
        auto_buf t = {0};
        char *at = strstr(text.p, swap[i][0]);
        CHECK(at);
        buf_put(&t, text.p, (size_t)(at - text.p));
        buf_puts(&t, swap[i][1]);
        buf_puts(&t, at + strlen(swap[i][0]));
        CHECK_INT(manifest_parse(t.p, t.n, &back, &e), -1);
        CHECK_INT(e.code, E_INVALID);
    }
    manifest_fini(&m);
}

TEST(manifest, publishes_by_rename)
{
    char path[32];
    struct err e = {0};
    struct manifest m = sample(), back;
    int dir = tmp_dir(path);
    CHECK_INT(manifest_publish(dir, m.id, &e), -1); /* nothing there */
    CHECK_INT(manifest_write(dir, &m, &e), -1);
    CHECK_INT(e.code, E_NOT_FOUND);
    put(dir, m.id, ".tmp", NULL, NULL);
    CHECK_INT(manifest_write(dir, &m, &e), 0);
    CHECK_INT(manifest_write(dir, &m, &e), 0);      /* again is fine */
    CHECK_INT(manifest_publish(dir, m.id, &e), -1); /* no rootfs.ext4 yet */
    CHECK(strstr(e.msg, "not complete"));
    CHECK_INT(manifest_read(dir, m.id, &back, &e), -1);
    put(dir, m.id, ".tmp", "rootfs.ext4", "ext4");
    CHECK_INT(manifest_publish(dir, m.id, &e), 0);
    CHECK_INT(manifest_read(dir, m.id, &back, &e), 0);
    CHECK_STR(back.name, "my-template");
    manifest_fini(&back);
    put(dir, m.id, ".tmp", "rootfs.ext4", "other");
    CHECK_INT(manifest_write(dir, &m, &e), 0);
    CHECK_INT(manifest_publish(dir, m.id, &e), -1); /* never over a published one */
    CHECK_INT(e.code, E_CONFLICT);
    CHECK_INT(manifest_publish(dir, "../etc", &e), -1);
    CHECK_INT(manifest_read(dir, "..", &back, &e), -1);
    manifest_fini(&m);
    tmp_drop(path, dir);
}

TEST(manifest, never_writes_what_it_could_not_read)
{
    char path[32];
    struct err e = {0};
    struct manifest m = sample();
    int dir = tmp_dir(path);
    put(dir, m.id, ".tmp", NULL, NULL);
    m.name[0] = '/';
    CHECK_INT(manifest_write(dir, &m, &e), -1);
    manifest_fini(&m);
    tmp_drop(path, dir);
}

struct seen { int ok, damaged; };
static int on_template(void *arg, const char *tid, const struct manifest *m, const struct err *why)
{
    struct seen *s = arg;
    CHECK(id_ok(str_of(tid)) && (m != NULL) != (why != NULL));
    s->ok += m != NULL, s->damaged += m == NULL;
    return 0;
}
static int stop(void *arg, const char *tid, const struct manifest *m, const struct err *why)
{
    (void)arg, (void)tid, (void)m, (void)why;
    return 7;
}

TEST(manifest, scans_published_ones_only)
{
    char path[32], id[22];
    struct err e = {0};
    struct seen s = {0};
    int dir = tmp_dir(path);
    for (int i = 0; i < 3; i++) {
        struct manifest m = sample();
        put(dir, m.id, ".tmp", "rootfs.ext4", "x");
        CHECK_INT(manifest_write(dir, &m, &e), 0);
        if (i < 2)
            CHECK_INT(manifest_publish(dir, m.id, &e), 0);
        manifest_fini(&m);
    }
    id_make('t', id);
    put(dir, id, "", "manifest.json", "{\"broken\":");
    id_make('t', id);
    put(dir, id, "", NULL, NULL); /* no manifest */
    id_make('t', id);
    struct manifest other = sample(); /* manifest of somebody else */
    auto_buf text = {0};
    manifest_format(&other, &text);
    put(dir, id, "", "manifest.json", text.p);
    manifest_fini(&other);
    id_make('t', id);
    CHECK(symlinkat("/etc", dir, id) == 0);
    put(dir, "not-an-id", "", "manifest.json", "{}");
    CHECK_INT(manifest_scan(dir, on_template, &s, &e), 0);
    CHECK_INT(s.ok, 2);
    CHECK_INT(s.damaged, 4);
    CHECK_INT(manifest_scan(dir, stop, NULL, &e), 7);
    tmp_drop(path, dir);
}

static bool is_busy(void *arg, const char *tid) { return !strcmp(arg, tid); }

TEST(manifest, gc_removes_stale_builds)
{
    char path[32], stale[22], fresh[22], busy[22], done[22], name[40];
    struct err e = {0};
    int dir = tmp_dir(path);
    struct timespec old[2] = {{time(NULL) - 7200, 0}, {time(NULL) - 7200, 0}};
    id_make('t', stale), id_make('t', fresh), id_make('t', busy), id_make('t', done);
    put(dir, stale, ".tmp", "rootfs.ext4", "x");
    put(dir, fresh, ".tmp", "rootfs.ext4", "x");
    put(dir, busy, ".tmp", "rootfs.ext4", "x");
    put(dir, done, "", "rootfs.ext4", "x");
    put(dir, "other", ".tmp", "x", "x");
    const char *aged[] = {stale, busy};
    for (int i = 0; i < 2; i++) {
        (void)snprintf(name, sizeof name, "%s.tmp", aged[i]);
        CHECK(utimensat(dir, name, old, 0) == 0);
    }
    CHECK_INT(manifest_gc(dir, 3600, is_busy, busy, &e), 1);
    (void)snprintf(name, sizeof name, "%s.tmp", stale);
    CHECK(faccessat(dir, name, F_OK, 0) < 0);
    (void)snprintf(name, sizeof name, "%s.tmp", fresh);
    CHECK(faccessat(dir, name, F_OK, 0) == 0 && faccessat(dir, done, F_OK, 0) == 0 && faccessat(dir, "other.tmp", F_OK, 0) == 0);
    CHECK_INT(manifest_gc(dir, 0, NULL, NULL, &e), 2);
    tmp_drop(path, dir);
}

TEST_MAIN
