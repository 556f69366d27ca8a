/* Volumes: images, the mount they share, keepers and containers that have it. As root, with the test init. */
#define TEST_SECONDS 90
#include "fixture.h"

static struct sp_req volume_req(const char *id, uint32_t mib, uint32_t inodes)
{
    struct sp_req q = {.op = SP_VOLUME_MAKE, .u.volume = {.size_mib = mib, .inodes = inodes}};
    strcpy(q.u.volume.id, id);
    return q;
}

static void volume_new(char id[SP_ID], uint32_t mib, uint32_t inodes)
{
    struct sp_rep rep;
    struct err e;
    memset(id, 0, SP_ID);
    id_make('v', id);
    struct sp_req q = volume_req(id, mib, inodes);
    if (spawn_call_sync(fx.fd, &q, NULL, 0, &rep, NULL, NULL, &fx.ev, 20000, &e)) {
        printf("# make: %s\n", e.msg);
        fx_log();
        CHECK(!"volume is made");
    }
}

static struct tbox keeper(const char *volume)
{
    struct sp_req q = {.op = SP_KEEPER_START};
    id_make('b', q.u.keeper.id);
    strcpy(q.u.keeper.volume, volume);
    return box_start_req(q);
}

static int lend(const struct tbox *b, const char *volume, const char *place, bool ro, struct err *e)
{
    struct sp_req q = {.op = SP_VOLUME_LEND, .u.lend = {.read_only = ro}};
    struct sp_rep rep;
    strcpy(q.u.lend.box, b->id);
    strcpy(q.u.lend.volume, volume);
    memcpy(q.u.lend.place, place, strnlen(place, sizeof q.u.lend.place)); /* too long: no NUL */
    return spawn_call_sync(fx.fd, &q, NULL, 0, &rep, NULL, NULL, &fx.ev, 20000, e);
}

static int loops_of(const char *volume)
{
    char c[160];
    snprintf(c, sizeof c, "cat /sys/block/loop*/loop/backing_file 2>/dev/null | grep -c '/%s.ext4$'", volume);
    return count_lines(c);
}

static void volume_gone(const char *id)
{
    struct sp_rep rep;
    struct err e = {0};
    if (call(SP_VOLUME_DELETE, id, &rep, NULL, NULL, &e)) {
        printf("# delete: %s\n", e.msg);
        CHECK(!"volume is deleted");
    }
}

TEST(volume, is_made_once_and_is_roots_alone)
{
    struct sp_rep rep;
    struct err e;
    struct stat st;
    char v[SP_ID], path[256];
    fx_start();
    volume_new(v, 32, 0);
    snprintf(path, sizeof path, "%s/home/volumes", fx.dir);
    CHECK(!stat(path, &st) && st.st_uid == 0 && (st.st_mode & 07777) == 0700);
    snprintf(path, sizeof path, "%s/home/volumes/%s.ext4", fx.dir, v);
    CHECK(!stat(path, &st) && st.st_size == 32 << 20 && (st.st_mode & 07777) == 0600);
    struct sp_req q = volume_req(v, 32, 0);
    CHECK(spawn_call_sync(fx.fd, &q, NULL, 0, &rep, NULL, NULL, &fx.ev, 20000, &e) && e.code == E_CONFLICT);
    CHECK(!call(SP_VOLUME_STAT, v, &rep, NULL, NULL, &e));
    CHECK(rep.u.stat.disk_bytes == 32 << 20 && rep.u.stat.disk_used > 0 && rep.u.stat.disk_used < 32 << 20);
    volume_gone(v);
    CHECK(stat(path, &st) < 0 && errno == ENOENT);
    volume_gone(v); /* again: fine */
    CHECK(call(SP_VOLUME_STAT, v, &rep, NULL, NULL, &e) && e.code == E_NOT_FOUND);
    fx_stop();
}

TEST(volume, sizes_and_ids_are_checked)
{
    struct sp_rep rep;
    struct err e;
    char v[SP_ID] = {0};
    fx_start();
    id_make('v', v);
    const uint32_t bad[][2] = {{0, 0}, {15, 0}, {SP_DISK_MAX + 1, 0}, {32, 1}};
    for (unsigned i = 0; i < 4; i++) {
        struct sp_req q = volume_req(v, bad[i][0], bad[i][1]);
        CHECK(spawn_call_sync(fx.fd, &q, NULL, 0, &rep, NULL, NULL, &fx.ev, 20000, &e) && e.code == E_INVALID);
    }
    struct sp_req q = volume_req("../../etc", 32, 0);
    CHECK(spawn_call_sync(fx.fd, &q, NULL, 0, &rep, NULL, NULL, &fx.ev, 20000, &e) && e.code == E_INVALID);
    fx_stop();
}

TEST(volume, keeper_has_it_as_root_and_nothing_else)
{
    char v[SP_ID];
    fx_start();
    volume_new(v, 32, 0);
    struct tbox k = keeper(v);
    CHECK_STR(ask(k.chan, "ids"), "1 0 0 -1"); /* not even its groups are to be asked */
    CHECK_STR(ask(k.chan, "ls /"), "");
    CHECK_STR(ask(k.chan, "cat /proc/self/status"), "No such file or directory");
    CHECK_STR(ask(k.chan, "write /file"), "OK");
    CHECK_STR(ask(k.chan, "ls /"), "file ");
    static const char *const denied[] = {"mount", "umount", "unshare", "clone_newuser", "keyctl", "fsopen", "setns", "ptrace1"};
    for (unsigned i = 0; i < sizeof denied / sizeof *denied; i++) {
        char line[64];
        snprintf(line, sizeof line, "sys %s", denied[i]);
        const char *got = ask(k.chan, "%s", line);
        if (strcmp(got, "EPERM"))
            printf("# %s: %s\n", denied[i], got);
        CHECK_STR(got, "EPERM");
    }
    box_gone(&k);
    struct tbox again = keeper(v); /* what was written is still there */
    CHECK_STR(ask(again.chan, "ls /"), "file ");
    box_gone(&again);
    volume_gone(v);
    fx_stop();
}

TEST(volume, is_lent_to_containers_together)
{
    struct err e = {0};
    char v[SP_ID];
    fx_start();
    volume_new(v, 32, 0);
    struct tbox k = keeper(v), a = box_start(), b = box_start(), c = box_start();
    if (lend(&a, v, "/data/deep/er", false, &e))
        printf("# %s\n", e.msg), fx_log();
    CHECK_STR(ask(a.chan, "write /data/deep/er/from-a"), "OK");
    CHECK(!lend(&b, v, "/mnt", true, &e) && !lend(&c, v, "/mnt", false, &e));
    CHECK_STR(ask(b.chan, "ls /mnt"), "from-a ");
    CHECK_STR(ask(b.chan, "write /mnt/x"), "Read-only file system");
    CHECK_STR(ask(c.chan, "write /mnt/from-c"), "OK");
    CHECK(strstr(ask(k.chan, "ls /"), "from-a") && strstr(ask(k.chan, "ls /"), "from-c"));
    const char *m = ask(a.chan, "cat /proc/self/mountinfo");
    CHECK(strstr(m, " /data/deep/er ") && strstr(m, "nosuid") && strstr(m, "nodev"));
    CHECK(!strstr(m, fx.dir));
    CHECK(strstr(ask(a.chan, "sys umount"), "EPERM"));
    box_gone(&a), box_gone(&b), box_gone(&c), box_gone(&k);
    CHECK_INT(loops_of(v), 1);
    volume_gone(v);
    CHECK_INT(loops_of(v), 0);
    fx_stop();
}

TEST(volume, refuses_bad_places_and_strangers)
{
    struct err e = {0};
    char v[SP_ID], other[SP_ID] = {0}, longest[SP_PLACE + 8];
    fx_start();
    volume_new(v, 32, 0);
    struct tbox k = keeper(v), a = box_start();
    memset(longest, 'a', sizeof longest);
    longest[0] = '/', longest[sizeof longest - 1] = 0;
    const char *const bad[] = {"", "/", "data", "/data/", "//data", "/a//b", "/a/../b", "/.", "/a/.", "/..", "/proc", "/proc/self", "/sys/x", "/dev",
                               "/a\nb", longest};
    for (unsigned i = 0; i < sizeof bad / sizeof *bad; i++) {
        CHECK(lend(&a, v, bad[i], false, &e));
        CHECK_INT(e.code, E_INVALID);
    }
    CHECK(lend(&k, v, "/data", false, &e) && e.code == E_NOT_FOUND); /* no container */
    id_make('v', other);
    CHECK(lend(&a, other, "/data", false, &e) && e.code == E_CONFLICT);
    CHECK(lend(&a, v, "/sbin/init", false, &e)); /* a file of the template */
    box_gone(&a), box_gone(&k);
    volume_gone(v);
    fx_stop();
}

TEST(volume, is_never_mounted_twice)
{
    struct sp_rep rep;
    struct err e = {0};
    char v[SP_ID];
    fx_start();
    volume_new(v, 32, 0);
    struct tbox k = keeper(v);
    CHECK(!call(SP_VOLUME_CLOSE, v, &rep, NULL, NULL, &e)); /* the spawner forgets, the keeper still has it */
    struct sp_req q = {.op = SP_KEEPER_START};
    id_make('b', q.u.keeper.id);
    strcpy(q.u.keeper.volume, v);
    int fds[3], n = 3;
    CHECK(spawn_call_sync(fx.fd, &q, NULL, 0, &rep, fds, &n, &fx.ev, 20000, &e));
    CHECK_INT(e.code, E_UNAVAILABLE);
    box_gone(&k);
    for (int i = 0; i < 200; i++) { /* unmounting takes a moment */
        n = 3;
        if (!spawn_call_sync(fx.fd, &q, NULL, 0, &rep, fds, &n, &fx.ev, 20000, &e))
            break;
        CHECK_INT(e.code, E_UNAVAILABLE);
        usleep(10000);
    }
    CHECK_INT(n, 2);
    struct tbox again = {.pidfd = fds[0], .chan = fds[1]};
    memcpy(again.id, q.u.keeper.id, SP_ID);
    box_gone(&again);
    volume_gone(v);
    fx_stop();
}

TEST(volume, caps_bytes_and_inodes)
{
    char v[SP_ID];
    fx_start();
    volume_new(v, 16, 64);
    struct tbox k = keeper(v);
    int made = 0;
    for (; made < 100; made++)
        if (strcmp(ask(k.chan, "write /f%d", made), "OK"))
            break;
    CHECK(made > 30 && made < 64);
    CHECK_STR(ask(k.chan, "write /one-more"), "No space left on device");
    box_gone(&k);
    volume_gone(v);
    fx_stop();
}

TEST(volume, distrusts_a_directory_that_is_not_roots)
{
    struct sp_rep rep;
    struct err e = {0};
    char v[SP_ID] = {0};
    fx_start();
    CHECK_INT(sh("mkdir -p %s/home/volumes && touch %s/home/volumes/x && chown -R 4711 %s/home/volumes", fx.dir, fx.dir, fx.dir), 0);
    id_make('v', v);
    struct sp_req q = volume_req(v, 32, 0);
    CHECK(spawn_call_sync(fx.fd, &q, NULL, 0, &rep, NULL, NULL, &fx.ev, 20000, &e));
    CHECK_INT(e.code, E_DENIED);
    CHECK_INT(sh("rm %s/home/volumes/x", fx.dir), 0); /* empty: taken over */
    CHECK(!spawn_call_sync(fx.fd, &q, NULL, 0, &rep, NULL, NULL, &fx.ev, 20000, &e));
    CHECK_INT(sh("chown 4711 %s/home/volumes/%s.ext4", fx.dir, v), 0);
    struct sp_req kq = {.op = SP_KEEPER_START};
    id_make('b', kq.u.keeper.id);
    strcpy(kq.u.keeper.volume, v);
    int fds[3], n = 3;
    CHECK(spawn_call_sync(fx.fd, &kq, NULL, 0, &rep, fds, &n, &fx.ev, 20000, &e));
    CHECK_INT(e.code, E_DENIED);
    fx_stop();
}

TEST_MAIN
