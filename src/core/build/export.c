/* What a recipe's steps have made: what differs from the parent goes to the
 * packer (image/difference.h), or a tar of the whole root where that cannot be
 * told: tools are missing inside, or the packer found that the result is not
 * what the guest says it is. */
#include "base/buf.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fd.h"
#include "core/build/recipe_int.h"
#include "core/sandbox/spool.h"
#include "core/agent/trust.h"
#include "spawn/op.h"
#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

/* ---- export: tar inside -> pipe -> packer ---- */
static void pipe_close(struct recipe_run *r)
{
    if (r->pipe_w < 0)
        return;
    io_stop(&r->pipe_io);
    (void)close(r->pipe_w);
    r->pipe_w = -1;
}

static void pipe_flush(struct recipe_run *r)
{
    while (r->queue_at < r->queue.n && r->pipe_w >= 0) {
        ssize_t n = write(r->pipe_w, r->queue.p + r->queue_at, r->queue.n - r->queue_at);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && errno == EAGAIN)
            break;
        if (n < 0) { /* the packer ended; its exit says why */
            r->queue_at = r->queue.n;
            break;
        }
        r->queue_at += (size_t)n;
        if (r->x)
            exec_consumed(r->x, (size_t)n);
    }
    if (r->queue_at == r->queue.n) {
        r->queue.n = r->queue_at = 0;
        if (r->export_ended)
            pipe_close(r);
    }
    if (r->pipe_w >= 0)
        io_want(&r->pipe_io, r->queue.n ? IO_WRITE : 0);
}

static void on_pipe(void *arg, int events)
{
    (void)events;
    pipe_flush(arg);
}

static void export_output(void *arg, uint8_t chan, const unsigned char *p, size_t n)
{
    struct recipe_run *r = arg;
    if (chan != CH_STDOUT) {
        recipe_log(r, p, n);
        exec_consumed(r->x, n);
        return;
    }
    buf_put(&r->queue, p, n); /* bounded by the stream's credit */
    pipe_flush(r);
}

static void export_done(void *arg, const struct err *e)
{
    struct recipe_run *r = arg;
    r->x = NULL;
    if (r->build->done)
        return;
    if (e) {
        build_fail(r->build, e);
        return;
    }
    if (r->again || (r->failed_exit && !r->whole)) {
        r->export_ended = true;
        pipe_flush(r);
        (void)recipe_again(r);
        return;
    }
    if (r->failed_exit &&
        r->status != 1) { /* 1: a file changed while it was read, which is no error here */
        recipe_fail(r, E_GUEST, "reading the built file system failed with status %d: %.120s",
                    r->status, r->tail);
        return;
    }
    r->export_ended = r->finished = true;
    pipe_flush(r);
    build_packed(r->build); /* waits for the packer if that is not through yet */
}

bool recipe_again(struct recipe_run *r)
{
    if (!r->exporting || r->whole)
        return false;
    r->again = true;
    if (!r->x && !r->build->pack_running) /* else whichever of the two is left comes here too */
        build_clear(r->build);
    return true;
}

void recipe_whole(struct recipe_run *r)
{
    pipe_close(r);
    r->queue.n = r->queue_at = 0;
    r->again = r->export_ended = false;
    r->whole = true;
    r->build->err = (struct err){0};
    build_log(r->build, "packing the whole file system, not only what changed");
    recipe_export(r);
}

void recipe_export(struct recipe_run *r)
{
    static const struct exec_ops ops = {
        .output = export_output, .exited = recipe_exited, .done = export_done};
    /* needs GNU's find and tar; status 1 of tar (a file changed) is for the packer to judge */
    static const char changed[] =
        "cd /; find --version 2>/dev/null | grep -q GNU && tar --version 2>/dev/null | grep -q GNU || exit 3; "
        "t=$(mktemp -d /run/hutch-XXXXXX) || exit 3; printf '.\\0' >$t/changed; "
        "find . -xdev \\( -path ./proc -o -path ./sys -o -path ./dev -o -path ./run \\) -prune -o \\( -type f -o -type d -o -type l \\) "
        "-fprintf $t/tree '%%y %%m %%U %%G %%s %%T@ %%P\\0' -newerct @%lld.%09lld -fprint0 $t/more || exit 3; cat $t/more >>$t/changed; "
        "printf 'tree %%s\\n' $(stat -c %%s $t/tree); cat $t/tree; "
        "tar --null --no-recursion --numeric-owner --xattrs --xattrs-include='*' -cf - -T $t/changed; s=$?; rm -rf $t; [ $s -le 1 ]";
    auto_free char *how = r->whole ? xstrdup(spool_root)
                                   : xasprintf(changed, (long long)(r->since_ns / NS_PER_S),
                                               (long long)(r->since_ns % NS_PER_S));
    auto_free char *all = xasprintf("%srm -rf " BUILD_CONTEXT "; %s", trust_undo, how);
    char *argv[] = {(char[]){"/bin/sh"}, (char[]){"-c"}, all, NULL};
    struct exec_spec s = {.argv = argv, .user = "root", .cwd = "/", .timeout_ms = BUILD_STEP_MS};
    struct sandbox *sb = recipe_box(r);
    struct err e;
    int p[2];
    r->exporting = true;
    if (!sb || pipe2(p, O_CLOEXEC)) {
        recipe_fail(r, E_INTERNAL, "the build's sandbox is gone");
        return;
    }
    (void)fcntl(p[1], F_SETPIPE_SZ, 1 << 20);
    r->pipe_w = p[1];
    (void)fd_nonblock(p[1]);
    io_init(&r->pipe_io, r->build->core->loop, p[1], on_pipe, r);
    build_stage(r->build, 60, 80);
    build_progress(r->build, 0, "packing the file system");
    int rc =
        build_pack(r->build, p[0], r->whole ? SP_PACK_TAR : SP_PACK_ONTO, r->build->t->parent, &e);
    (void)close(p[0]);
    r->failed_exit = false;
    if (rc || !(r->x = exec_start(sb, &s, &ops, r, &e)))
        build_fail(r->build, &e);
}
