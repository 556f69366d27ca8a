/* The writable layer of a container as a file of a snapshot, and new layers made of such a file. As root, with the test init. */
#define TEST_SECONDS 90
#include "fixture.h"

#define SID "s00000000000000000000"
#define BID "b00000000000000000000"
#define OTHER "b00000000000000000001"

static int layer(uint32_t op, const char *box, const char *snapshot, struct sp_saved *ret, struct err *e)
{
    struct sp_req q = {.op = op};
    struct sp_rep rep = {0};
    (void)snprintf(q.u.layer.id, sizeof q.u.layer.id, "%s", box);
    (void)snprintf(q.u.layer.snapshot, sizeof q.u.layer.snapshot, "%s", snapshot);
    int rc = spawn_call_sync(fx.fd, &q, NULL, 0, &rep, NULL, NULL, &fx.ev, 20000, e);
    if (!rc && ret)
        *ret = rep.u.saved;
    return rc;
}

/* As the daemon does: a directory under another name, the spawner's file in it, then the rename. */
static void save(const char *box, struct sp_saved *ret)
{
    struct err e;
    CHECK_INT(sh("mkdir -p %s/home/snapshots/." SID ".tmp", fx.dir), 0);
    if (layer(SP_LAYER_SAVE, box, SID, ret, &e)) {
        printf("# %s\n", e.msg);
        CHECK(!"it is saved");
    }
    CHECK_INT(sh("mv %s/home/snapshots/." SID ".tmp %s/home/snapshots/" SID, fx.dir, fx.dir), 0);
}

static struct tbox seeded(const char *id)
{
    struct err e;
    if (layer(SP_LAYER_SEED, id, SID, NULL, &e)) {
        printf("# %s\n", e.msg);
        CHECK(!"it is seeded");
    }
    return box_start_req(box_req(id));
}

static void drop_snapshot(void) { CHECK_INT(sh("rm -rf %s/home/snapshots", fx.dir), 0); }

TEST(layer, is_copied_while_the_container_goes_on)
{
    struct sp_saved saved = {0};
    struct stat st;
    char path[160];
    fx_start();
    struct tbox b = box_start();
    CHECK_STR(ask(b.chan, "write /etc/kept"), "OK");
    save(b.id, &saved);
    CHECK(saved.ns > 0 && saved.bytes > 0 && saved.bytes < 64u << 20);
    CHECK_STR(ask(b.chan, "write /etc/later"), "OK"); /* it is thawed */
    snprintf(path, sizeof path, "%s/home/snapshots/" SID "/upper.ext4", fx.dir);
    CHECK_INT(stat(path, &st), 0);
    CHECK(st.st_uid == 0 && (st.st_mode & 07777) == 0600 && (uint64_t)st.st_blocks * 512 == saved.bytes);
    CHECK_INT(sh("cp %s %s/copy && e2fsck -fy %s/copy >/dev/null; e2fsck -fn %s/copy >/dev/null", path, fx.dir, fx.dir, fx.dir), 0);
    struct tbox kid = seeded(BID);
    CHECK(strstr(ask(kid.chan, "ls /etc"), "kept") && !strstr(ask(kid.chan, "ls /etc"), "later"));
    CHECK_STR(ask(kid.chan, "write /etc/mine"), "OK");
    CHECK(!strstr(ask(b.chan, "ls /etc"), "mine"));
    box_gone(&kid);
    kid = seeded(OTHER); /* the snapshot is what it was */
    CHECK(!strstr(ask(kid.chan, "ls /etc"), "mine"));
    box_gone(&kid), box_gone(&b);
    drop_snapshot();
    fx_stop();
}

TEST(layer, of_one_that_was_released)
{
    struct sp_saved saved = {0};
    struct sp_rep rep;
    struct err e;
    fx_start();
    struct tbox b = box_start();
    CHECK_STR(ask(b.chan, "write /etc/kept"), "OK");
    close(b.pidfd), close(b.chan);
    CHECK_INT(call(SP_RELEASE, b.id, &rep, NULL, NULL, &e), 0);
    save(b.id, &saved);
    CHECK(saved.bytes > 0);
    struct tbox kid = seeded(BID);
    CHECK(strstr(ask(kid.chan, "ls /etc"), "kept"));
    box_gone(&kid);
    CHECK_INT(call(SP_REMOVE, b.id, &rep, NULL, NULL, &e), 0);
    drop_snapshot();
    fx_stop();
}

TEST(layer, refuses_what_is_not_right)
{
    struct err e;
    struct sp_exit x;
    fx_start();
    struct tbox b = box_start();
    static const char *const bad[] = {"", "../../../etc", "s0000000000000000000/", "S00000000000000000000", "s0"};
    for (unsigned i = 0; i < sizeof bad / sizeof *bad; i++) {
        CHECK_INT(layer(SP_LAYER_SAVE, b.id, bad[i], NULL, &e), -1);
        CHECK_INT(e.code, E_INVALID);
        CHECK_INT(layer(SP_LAYER_SEED, bad[i], SID, NULL, &e), -1);
        CHECK_INT(e.code, E_INVALID);
    }
    CHECK_INT(layer(SP_LAYER_SAVE, b.id, SID, NULL, &e), -1); /* no directory of ours */
    CHECK_INT(layer(SP_LAYER_SAVE, BID, SID, NULL, &e), -1);  /* no such box */
    save(b.id, NULL);
    CHECK_INT(sh("cp -a %s/home/snapshots/" SID " %s/home/snapshots/." SID ".tmp", fx.dir, fx.dir), 0);
    CHECK_INT(layer(SP_LAYER_SAVE, b.id, SID, NULL, &e), -1); /* something is there already */
    CHECK_INT(layer(SP_LAYER_SEED, b.id, SID, NULL, &e), -1);
    CHECK_INT(e.code, E_CONFLICT);
    /* A layer that somebody else could write to, or did write, is not used. */
    static const char *const spoil[] = {"chown 64882 upper.ext4", "ln upper.ext4 second", "mv upper.ext4 x && ln -s x upper.ext4", "mv upper.ext4 x && mkdir upper.ext4", "mv upper.ext4 x && mkfifo upper.ext4"};
    for (unsigned i = 0; i < sizeof spoil / sizeof *spoil; i++) {
        CHECK_INT(sh("cd %s/home/snapshots && rm -rf " SID " && cp -a ." SID ".tmp " SID " && cd " SID " && %s", fx.dir, spoil[i]), 0);
        CHECK_INT(layer(SP_LAYER_SEED, BID, SID, NULL, &e), -1);
        CHECK_INT(sh("test ! -e %s/home/boxes/" BID, fx.dir), 0);
    }
    CHECK(fd_write_all(b.chan, "exit 0\n", 7));
    CHECK_INT(spawn_wait_exit(fx.fd, b.id, &x, &fx.ev, 10000, &e), 0);
    CHECK_INT(layer(SP_LAYER_SAVE, b.id, SID, NULL, &e), -1); /* it ended, and nobody has let it go */
    CHECK_INT(e.code, E_GONE);
    box_gone(&b);
    drop_snapshot();
    fx_stop();
}
TEST_MAIN
