/* read_file, write_file, edit_file, list_files. */
#include "api/mcp/args.h"
#include "api/mcp/bytes.h"
#include "api/mcp/mcp.h"
#include "api/mcp/text.h"
#include "api/utf8.h"
#include "base/clock.h"
#include "base/enc.h"
#include <stdio.h>
#include <stdlib.h>

#define READ_MAX  (8u << 20)
#define TEXT_MAX  (16u << 10) /* of numbered lines in one answer */
#define IMAGE_MAX (1u << 20)
#define SNIFF     8192u

struct filing {
    struct gather *g;
    struct pour *p;
    bool existed;
    char *path, *diff;
    uint32_t mode;
    int64_t replaced;
    struct buf text;
};

static void filing_fini(struct mcall *k)
{
    struct filing *f = k->state;
    gather_cancel(f->g);
    pour_cancel(f->p);
    free(f->path), free(f->diff);
    buf_free(&f->text);
    free(f);
    k->state = NULL;
}

static struct filing *filing_new(struct mcall *k)
{
    struct filing *f = xcalloc(1, sizeof *f);
    k->state = f;
    k->fini = filing_fini;
    return f;
}

/* Paths are the guest's; an error names the one that was asked for. */
static const char *asked_path(struct mcall *k) { return args_str(k->schema, k->args, "path").p; }

static bool path_bad(struct mcall *k)
{
    if (*asked_path(k))
        return false;
    mcall_refuse(k, "path: must not be empty.");
    return true;
}

static void fail_path(struct mcall *k, const struct err *e)
{
    struct err with = *e;
    if (!strstr(e->msg, asked_path(k)))
        (void)err_wrap(&with, "%.100s", asked_path(k));
    mcall_fail(k, &with, ABOUT_FILE);
}

static void put_where(struct jw *w, struct mcall *k, const char *path)
{
    jw_kv_str(w, "sandbox", k->sandbox);
    jw_kv_str(w, "path", path);
}

/* ---- read_file ---- */
struct range {
    size_t from, to, total, shown_to;
    bool cut;
};

/* Lines as "N<tab>line", from first to last, as many as fit. */
static void put_numbered(struct str s, struct range *r, struct buf *out)
{
    size_t line = 1;
    r->total = text_lines(s);
    for (size_t i = 0; i < s.n; line++) {
        const char *nl = memchr(s.p + i, '\n', s.n - i);
        size_t n = nl ? (size_t)(nl - s.p) - i : s.n - i;
        if (line >= r->from && line <= r->to && !r->cut) {
            if (out->n + n + 16 > TEXT_MAX) {
                r->cut = true;
                if (out->n)
                    break;
                n = utf8_whole(s.p + i, TEXT_MAX - 64); /* one line that is too long by itself */
            }
            buf_printf(out, "%zu\t", line);
            buf_put(out, s.p + i, n);
            buf_putc(out, '\n');
            r->shown_to = line;
        }
        i = nl ? (size_t)(nl - s.p) + 1 : s.n;
    }
}

static void answer_text(struct mcall *k, const struct file_entry *en, const char *mime,
                        struct buf *data)
{
    auto_buf lines = {0}, text = {0};
    bool all = en->size <= data->n;
    struct range r = {.from = (size_t)args_num(k->schema, k->args, "start_line", 1),
                      .to = (size_t)args_num(k->schema, k->args, "end_line", 1e15)};
    put_numbered((struct str){data->p, data->n}, &r, &lines);
    bool cut = r.cut || (!all && r.to > r.total);
    buf_printf(&text, "[%s · %s · %llu bytes", k->sandbox, en->path, (unsigned long long)en->size);
    if (all)
        buf_printf(&text, " · %zu lines", r.total);
    buf_puts(&text, "]\n");
    buf_put(&text, lines.p, lines.n);
    if (cut)
        buf_printf(&text, "… truncated after line %zu; read on with start_line %zu.\n", r.shown_to,
                   r.shown_to + 1);
    mcall_text(k, (struct str){text.p, text.n});
    struct jw *w = mcall_structured(k);
    put_where(w, k, en->path);
    jw_kv_u64(w, "bytes", en->size);
    jw_kv_str(w, "mime_type", mime);
    if (all)
        jw_kv_u64(w, "total_lines", r.total);
    jw_kv_bool(w, "truncated", cut);
    mcall_done(k);
}

static void answer_binary(struct mcall *k, const struct file_entry *en, const char *mime,
                          struct buf *data)
{
    bool shown = !strncmp(mime, "image/", 6) && strcmp(mime, "image/svg+xml") != 0 &&
                 en->size <= IMAGE_MAX && data->n;
    mcall_textf(k, "[%s · %s · %s · %llu bytes]", k->sandbox, en->path, mime,
                (unsigned long long)en->size);
    if (shown) {
        auto_buf b64 = {0};
        base64_encode(data->p, data->n, &b64);
        mcall_image(k, mime, (struct str){b64.p, b64.n});
    } else {
        mcall_link(k, k->sandbox, en->path, mime, en->size);
    }
    struct jw *w = mcall_structured(k);
    put_where(w, k, en->path);
    jw_kv_u64(w, "bytes", en->size);
    jw_kv_str(w, "mime_type", mime);
    jw_kv_bool(w, "truncated", false);
    mcall_done(k);
}

static void file_read_done(void *arg, const struct err *e, const struct file_entry *en,
                           struct buf *data)
{
    struct mcall *k = arg;
    struct filing *f = k->state;
    f->g = NULL;
    if (e) {
        fail_path(k, e);
        return;
    }
    struct str begin = {data->p ? data->p : "", data->n < SNIFF ? data->n : SNIFF};
    struct file_entry real = *en;
    if (real.size < data->n)
        real.size = data->n; /* /proc says 0 */
    const char *mime = text_mime(en->path, begin);
    bool text = str_utf8((struct str){begin.p, utf8_whole(begin.p, begin.n)});
    if (text)
        answer_text(k, &real, mime, data);
    else
        answer_binary(k, &real, mime, data);
}

void tool_read_file(struct mcall *k, struct sandbox *sb)
{
    struct err e;
    double from = args_num(k->schema, k->args, "start_line", 1);
    if (path_bad(k))
        return;
    if (args_num(k->schema, k->args, "end_line", from) < from) {
        mcall_refuse(k, "end_line: must not be before start_line.");
        return;
    }
    struct filing *f = filing_new(k);
    f->g = gather_start(sb, asked_path(k), READ_MAX, file_read_done, k, &e);
    if (!f->g)
        fail_path(k, &e);
}

/* ---- write_file ---- */
static void answer_written(struct mcall *k, const char *path, uint64_t size)
{
    struct filing *f = k->state;
    bool existed = f->existed;
    auto_buf full = {0};
    buf_puts(&full, path);
    resource_artifact(k->m, k->post->tenant, k->sandbox, full.p,
                      text_mime(full.p, (struct str){"", 0}), size);
    mcall_textf(k, "[%s] %s %s, %llu bytes.", k->sandbox, existed ? "Wrote" : "Created", full.p,
                (unsigned long long)size);
    struct jw *w = mcall_structured(k);
    put_where(w, k, full.p);
    jw_kv_u64(w, "bytes", size);
    jw_kv_bool(w, "created", !existed);
    mcall_done(k);
}

static void file_made_executable(void *arg, const struct err *e, const struct file_entry *en)
{
    struct mcall *k = arg;
    if (!mcall_back(k))
        return;
    if (e)
        fail_path(k, e);
    else
        answer_written(k, en->path, en->size);
}

static void file_written(void *arg, const struct err *e, const struct file_entry *en)
{
    struct mcall *k = arg;
    struct filing *f = k->state;
    struct err no;
    f->p = NULL;
    if (e) {
        fail_path(k, e);
        return;
    }
    if (!args_bool(k->schema, k->args, "executable")) {
        answer_written(k, en->path, en->size);
        return;
    }
    uint32_t mode = en->mode | 0111;
    struct sandbox *sb = mcall_own_sandbox(k, &no);
    mcall_hold(k);
    mcall_settle(
        k,
        !sb || files_setattr(sb, en->path, NULL, &mode, NULL, NULL, file_made_executable, k, &no),
        &no, ABOUT_FILE);
}

static void write_out(struct mcall *k, const struct file_write_spec *spec, const struct buf *data,
                      const struct pour_ops *ops)
{
    struct filing *f = k->state;
    struct err e;
    struct sandbox *sb = mcall_own_sandbox(k, &e);
    f->p = sb ? pour_start(sb, spec, ops, k, &e) : NULL;
    if (!f->p) {
        fail_path(k, &e);
        return;
    }
    pour_put(f->p, data->p, data->n);
    pour_end(f->p);
}

static void file_looked_at(void *arg, const struct err *e, const struct file_entry *en)
{
    static const struct pour_ops ops = {.done = file_written};
    struct mcall *k = arg;
    if (!mcall_back(k))
        return;
    struct filing *f = k->state;
    struct file_write_spec spec = {.path = asked_path(k),
                                   .append = args_bool(k->schema, k->args, "append")};
    f->existed = !e;
    if (e && e->code != E_NOT_FOUND) {
        fail_path(k, e);
        return;
    }
    spec.mode = !e ? (en->type == 'l' ? en->target_mode : en->mode) : 0644;
    write_out(k, &spec, &f->text, &ops);
}

void tool_write_file(struct mcall *k, struct sandbox *sb)
{
    struct err e;
    struct str content = args_str(k->schema, k->args, "content");
    if (path_bad(k))
        return;
    struct filing *f = filing_new(k);
    if (!str_eqz(args_str(k->schema, k->args, "encoding"), "base64")) {
        buf_put(&f->text, content.p, content.n);
    } else if (!base64_decode(content.p, content.n, &f->text)) {
        mcall_refuse(k, "content: not base64.");
        return;
    }
    mcall_hold(k);
    mcall_settle(k, files_stat(sb, asked_path(k), NULL, file_looked_at, k, &e), &e, ABOUT_FILE);
}

/* ---- edit_file ---- */
static size_t occurrences(const struct buf *text, struct str old)
{
    size_t n = 0;
    for (const char *p = text->p;
         p && (p = memmem(p, text->n - (size_t)(p - text->p), old.p, old.n)); p += old.n)
        n++;
    return n;
}

static void replace(struct buf *text, struct str old, struct str new, struct buf *out)
{
    const char *p = text->p, *end = text->p + text->n, *hit;
    while ((hit = memmem(p, (size_t)(end - p), old.p, old.n))) {
        buf_put(out, p, (size_t)(hit - p));
        buf_put(out, new.p, new.n);
        p = hit + old.n;
    }
    buf_put(out, p, (size_t)(end - p));
}

/* In order, each on what the one before left; -1: k was told which does not fit. */
static int64_t apply_edits(struct mcall *k, struct buf *text)
{
    struct json *edits = json_get(k->args, "edits");
    int64_t all = 0;
    for (size_t i = 0; i < json_len(edits); i++) {
        struct json *ed = json_at(edits, i);
        struct str old = {0}, new = {0};
        struct buf next = {0};
        bool every = false;
        (void)json_str(ed, "old", &old, true, NULL); /* these were checked before */
        (void)json_str(ed, "new", &new, true, NULL);
        (void)json_bool(ed, "replace_all", false, &every, NULL);
        size_t n = old.n ? occurrences(text, old) : 0;
        if (!n || (n > 1 && !every)) {
            if (!old.n)
                mcall_refuse(k, "edits[%zu].old must not be empty. Nothing was changed.", i);
            else if (!n)
                mcall_refuse(k, "edits[%zu].old does not occur in %s. Nothing was changed.", i,
                             asked_path(k));
            else
                mcall_refuse(k,
                             "edits[%zu].old occurs %zu times in %s; add context or set "
                             "replace_all. Nothing was changed.",
                             i, n, asked_path(k));
            return -1;
        }
        replace(text, old, new, &next);
        buf_free(text);
        *text = next;
        all += (int64_t)n;
    }
    return all;
}

static void file_edited(void *arg, const struct err *e, const struct file_entry *en)
{
    struct mcall *k = arg;
    struct filing *f = k->state;
    f->p = NULL;
    if (e) {
        fail_path(k, e);
        return;
    }
    auto_buf path = {0};
    buf_puts(&path, en->path);
    mcall_textf(k, "[%s] %s: %lld replaced\n%s", k->sandbox, path.p, (long long)f->replaced,
                f->diff);
    struct jw *w = mcall_structured(k);
    put_where(w, k, path.p);
    jw_kv_i64(w, "replacements", f->replaced);
    jw_kv_str(w, "diff", f->diff);
    mcall_done(k);
}

static void file_to_edit(void *arg, const struct err *e, const struct file_entry *en,
                         struct buf *data)
{
    static const struct pour_ops ops = {.done = file_edited};
    struct mcall *k = arg;
    struct filing *f = k->state;
    struct buf diff = {0};
    f->g = NULL;
    if (e) {
        fail_path(k, e);
        return;
    }
    if (en->size > READ_MAX || !str_utf8((struct str){data->p ? data->p : "", data->n})) {
        mcall_refuse(k, "%s is %s; edit it with run_command.", en->path,
                     en->size > READ_MAX ? "larger than 8 MiB" : "not text");
        return;
    }
    buf_put(&f->text, data->p, data->n);
    buf_reserve(&f->text, 0);
    int64_t replaced = apply_edits(k, &f->text);
    if (replaced < 0) /* it was refused, and f is gone */
        return;
    f->replaced = replaced;
    text_diff(str_of(en->path), (struct str){data->p, data->n}, (struct str){f->text.p, f->text.n},
              &diff);
    buf_reserve(&diff, 0);
    diff.p[diff.n] = 0;
    f->diff = buf_take(&diff);
    f->path = xstrdup(en->path);
    struct file_write_spec spec = {.path = f->path, .mode = en->mode};
    write_out(k, &spec, &f->text, &ops);
}

void tool_edit_file(struct mcall *k, struct sandbox *sb)
{
    struct err e;
    if (path_bad(k))
        return;
    struct filing *f = filing_new(k);
    f->g = gather_start(sb, asked_path(k), READ_MAX + 1, file_to_edit, k, &e);
    if (!f->g)
        fail_path(k, &e);
}

/* ---- list_files ---- */
struct listing {
    struct buf entries, text;
    char *path;
    size_t n, limit;
    bool more;
};

static void listing_fini(struct mcall *k)
{
    struct listing *l = k->state;
    buf_free(&l->entries), buf_free(&l->text);
    free(l->path);
    free(l);
    k->state = NULL;
}

static void list_one(struct mcall *k, struct listing *l, const struct file_entry *en)
{
    const char *glob = args_str(k->schema, k->args, "glob").p;
    size_t base = strlen(l->path);
    const char *rel = en->path;
    if (!strncmp(rel, l->path, base) && (rel[base] == '/' || !strcmp(l->path, "/")))
        rel += base + (rel[base] == '/');
    if (glob && !text_glob(glob, rel))
        return;
    if (l->n == l->limit) {
        l->more = true;
        return;
    }
    struct jw w;
    char when[32];
    if (l->n++)
        buf_putc(&l->entries, ',');
    clock_rfc3339(en->mtime_ns, when);
    jw_init(&w, &l->entries);
    jw_obj(&w);
    jw_kv_str(&w, "path", rel);
    jw_kv_str(&w, "type",
              en->type == 'f'   ? "file"
              : en->type == 'd' ? "dir"
              : en->type == 'l' ? "symlink"
                                : "other");
    jw_kv_u64(&w, "size", en->size);
    jw_kv_str(&w, "modified", when);
    jw_end(&w);
    if (l->text.n < TEXT_MAX)
        buf_printf(&l->text, "%s%s\t%llu\n", rel, en->type == 'd' ? "/" : "",
                   (unsigned long long)en->size);
}

static void list_entries(void *arg, const struct file_entry *en, size_t n)
{
    struct mcall *k = arg;
    if (k->over || !k->state)
        return;
    for (size_t i = 0; i < n; i++)
        list_one(k, k->state, &en[i]);
}

static void list_done(void *arg, const struct err *e)
{
    struct mcall *k = arg;
    if (!mcall_back(k))
        return;
    struct listing *l = k->state;
    if (e) {
        fail_path(k, e);
        return;
    }
    mcall_textf(k, "[%s · %s · %zu entries%s]\n%s%s", k->sandbox, l->path, l->n,
                l->more ? ", more exist: raise limit or use glob" : "", l->text.n ? l->text.p : "",
                l->text.n >= TEXT_MAX ? "…\n" : "");
    auto_buf list = {0};
    buf_putc(&list, '[');
    buf_put(&list, l->entries.p, l->entries.n);
    buf_putc(&list, ']');
    struct jw *w = mcall_structured(k);
    put_where(w, k, l->path);
    jw_kv_raw(w, "entries", (struct str){list.p, list.n});
    jw_kv_bool(w, "truncated", l->more);
    mcall_done(k);
}

/* A link to a directory is listed as the directory. */
static void list_looked_at(void *arg, const struct err *e, const struct file_entry *en)
{
    static const struct files_list_ops ops = {.entries = list_entries, .done = list_done};
    struct mcall *k = arg;
    struct err no;
    if (!mcall_back(k))
        return;
    struct listing *l = k->state;
    if (e) {
        fail_path(k, e);
        return;
    }
    bool dir = en->type == 'd' || (en->type == 'l' && en->target_type == 'd');
    if (!dir) {
        mcall_refuse(k, "%s is not a directory.", en->path);
        return;
    }
    struct str glob = args_str(k->schema, k->args, "glob");
    double depth = args_num(k->schema, k->args, "depth", 1);
    if (glob.p && !json_has(k->args, "depth") && (strchr(glob.p, '/') || strstr(glob.p, "**")))
        depth = 10; /* a pattern that goes deeper is meant so */
    l->path = xstrdup(en->type == 'l' && en->target ? en->target : en->path);
    for (size_t n = strlen(l->path); n > 1 && l->path[n - 1] == '/';)
        l->path[--n] = 0;
    struct sandbox *sb = mcall_own_sandbox(k, &no);
    mcall_hold(k);
    mcall_settle(k, !sb || files_list(sb, l->path, NULL, (unsigned)depth, &ops, k, &no), &no,
                 ABOUT_FILE);
}

void tool_list_files(struct mcall *k, struct sandbox *sb)
{
    struct err e;
    if (path_bad(k))
        return;
    struct listing *l = xcalloc(1, sizeof *l);
    k->state = l;
    k->fini = listing_fini;
    l->limit = (size_t)args_num(k->schema, k->args, "limit", 200);
    mcall_hold(k);
    mcall_settle(k, files_stat(sb, asked_path(k), NULL, list_looked_at, k, &e), &e, ABOUT_FILE);
}
