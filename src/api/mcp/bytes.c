#include "api/mcp/bytes.h"
#include "base/buf.h"
#include <stdlib.h>
#include <string.h>

/* ---- pour ---- */
struct pour {
    struct file_write *f;
    struct pour_ops ops;
    void *arg;
    struct buf rest;
    bool ended, told;
};

static void pour_push(struct pour *p)
{
    size_t took = p->rest.n ? file_write_send(p->f, p->rest.p, p->rest.n) : 0;
    if (took)
        buf_drop(&p->rest, took);
    if (p->ended && !p->rest.n && !p->told) {
        p->told = true;
        file_write_eof(p->f);
    }
}

static void pour_room(void *arg)
{
    struct pour *p = arg;
    size_t before = p->rest.n;
    pour_push(p);
    if (p->rest.n < before && p->ops.room)
        p->ops.room(p->arg);
}

static void pour_over(void *arg, const struct err *e, const struct file_entry *en)
{
    struct pour *p = arg;
    p->ops.done(p->arg, e, en);
    buf_free(&p->rest);
    free(p);
}

struct pour *pour_start(struct sandbox *sb, const struct file_write_spec *spec,
                        const struct pour_ops *ops, void *arg, struct err *e)
{
    static const struct file_write_ops writing = {.room = pour_room, .done = pour_over};
    struct pour *p = xcalloc(1, sizeof *p);
    p->ops = *ops, p->arg = arg;
    p->f = file_write_start(sb, spec, &writing, p, e);
    if (p->f)
        return p;
    free(p);
    return NULL;
}

void pour_put(struct pour *p, const void *bytes, size_t n)
{
    buf_put(&p->rest, bytes, n);
    pour_push(p);
}

size_t pour_waiting(const struct pour *p) { return p->rest.n; }

void pour_end(struct pour *p)
{
    p->ended = true;
    pour_push(p);
}

void pour_cancel(struct pour *p)
{
    if (!p)
        return;
    file_write_cancel(p->f);
    buf_free(&p->rest);
    free(p);
}

/* ---- gather ---- */
struct gather {
    struct file_read *f;
    gather_done *done;
    void *arg;
    struct buf data;
    struct file_entry en;
    char *name, *path;
};

static void gather_free(struct gather *g)
{
    free(g->name), free(g->path);
    buf_free(&g->data);
    free(g);
}

static void gather_opened(void *arg, const struct file_entry *en)
{
    struct gather *g = arg;
    g->en = *en;
    g->en.name = g->name = xstrdup(en->name ? en->name : "");
    g->en.path = g->path = xstrdup(en->path ? en->path : "");
    g->en.owner = g->en.group = g->en.target = NULL;
    g->en.xattr = NULL;
}

static void gather_data(void *arg, const unsigned char *p, size_t n)
{
    struct gather *g = arg;
    buf_put(&g->data, p, n);
    file_read_consumed(g->f, n);
}

static void gather_over(void *arg, const struct err *e, uint64_t sent)
{
    struct gather *g = arg;
    (void)sent;
    g->done(g->arg, e, e ? NULL : &g->en, e ? NULL : &g->data);
    gather_free(g);
}

struct gather *gather_start(struct sandbox *sb, const char *path, size_t max, gather_done *done,
                            void *arg, struct err *e)
{
    static const struct file_read_ops ops = {
        .opened = gather_opened, .data = gather_data, .done = gather_over};
    struct gather *g = xcalloc(1, sizeof *g);
    g->done = done, g->arg = arg;
    g->f = file_read_start(sb, path, NULL, 0, max, &ops, g, e);
    if (g->f)
        return g;
    free(g);
    return NULL;
}

void gather_cancel(struct gather *g)
{
    if (!g)
        return;
    file_read_cancel(g->f);
    gather_free(g);
}
