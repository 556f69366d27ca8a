/* URLs that need no key, of upload_file and download_file: what they are for is in them, sealed.
 * One for an upload works once. */
#include "api/mcp/args.h"
#include "api/mcp/mcp.h"
#include "api/req.h"
#include "api/transfer.h"
#include "base/clock.h"
#include "base/enc.h"
#include "base/quote.h"
#include "api/mcp/text.h"
#include "core/sandbox/exec.h"
#include <stdio.h>
#include <stdlib.h>

#define UPLOAD_TTL_S 3600
#define USED_MAX     10000
#define FETCH_MS     (300 * 1000)

/* ---- sealed: op, expiry, sandbox, salt, path ---- */
void link_make(struct mcp *m, const char *base, char op, const char *sandbox, const char *path,
               int64_t expires_s, struct buf *out)
{
    auto_buf text = {0};
    unsigned char salt[8];
    char hex[17];
    random_bytes(salt, sizeof salt);
    hex_encode(salt, sizeof salt, hex);
    buf_printf(&text, "%c %lld %s %s %s", op, (long long)expires_s, sandbox, hex, path);
    buf_printf(out, "%s/mcp/files/", base);
    mcp_seal(m, "link", (struct str){text.p, text.n}, out);
}

struct opened {
    struct sandbox *sb;
    char *path; /* owned */
};

/* False: the answer is out. */
static bool open_link(struct api *a, struct http_stream *s, char op, struct opened *ret)
{
    struct mcp *m = mcp_of(a);
    struct err e;
    struct str link = http_param(s, "link");
    auto_buf text = {0};
    char got, sandbox[22];
    long long until;
    int at = 0;
    bool ok = mcp_unseal(m, "link", link, &text) &&
              sscanf(text.p, "%c %lld %21s %*16s %n", &got, &until, sandbox, &at) == 3 && at &&
              got == op;
    if (!ok || until < clock_wall() / NS_PER_S || map_get_n(&m->used_links, link.p, link.n)) {
        err_set(&e, E_DENIED, !ok ? "this URL is not valid" : "this URL is no longer valid");
        api_fail(s, &e, ABOUT_REQUEST);
        return false;
    }
    ret->sb = sandbox_find(m->core, sandbox, &e); /* the seal is the permission */
    if (!ret->sb || !sandbox_agent(ret->sb, &e)) {
        api_fail(s, &e, ABOUT_SANDBOX);
        return false;
    }
    ret->path = xstrdup(text.p + at);
    return true;
}

/* ---- PUT ---- */
struct upload {
    struct taking t;
    char *link;
};

static void upload_done(struct taking *t, const struct err *e, const struct file_entry *en)
{
    struct upload *u = (struct upload *)(void *)t;
    struct mcp *m = mcp_of(t->r.api);
    if (e || !en) {
        map_del(&m->used_links, u->link); /* it may be tried again */
        free(u->link);
        req_fail(&t->r, e, ABOUT_FILE);
        return;
    }
    free(u->link);
    struct jw *w = reply_begin(t->r.s);
    jw_obj(w);
    jw_kv_str(w, "path", en->path);
    jw_kv_u64(w, "bytes", en->size);
    jw_end(w);
    req_send(&t->r, 201);
}

void mcp_upload(struct http_stream *s, void *a)
{
    struct mcp *m = mcp_of(a);
    struct opened o;
    struct err e;
    struct str link = http_param(s, "link");
    if (!open_link(a, s, 'u', &o))
        return;
    if (m->used_links.n >= USED_MAX)
        map_free(&m->used_links), m->used_links = (struct map){0};
    struct upload *u = taking_new(a, s, sizeof *u, upload_done);
    struct file_write_spec spec = {.path = o.path, .mode = 0644};
    u->link = xstrndup(link.p, link.n);
    map_set(&m->used_links, u->link, m);
    if (taking_start(&u->t, sandbox_agent(o.sb, &e), &spec, &e))
        upload_done(&u->t, &e, NULL);
    free(o.path);
}

/* ---- GET: a file ---- */
static void download_fail(struct sending *st, const struct err *e)
{
    req_fail(&st->r, e, ABOUT_FILE);
}

static void name_download(struct http_stream *s, const char *path, const char *ending)
{
    const char *slash = strrchr(path, '/');
    char name[128];
    size_t n = 0;
    for (const char *p = slash ? slash + 1 : path; *p && n < sizeof name - 1; p++)
        name[n++] = *p == '"' || *p == '\\' || *p < 0x20 || *p > 0x7e ? '_' : *p;
    name[n] = 0;
    (void)http_headerf(s, "Content-Disposition", "attachment; filename=\"%s%s\"", name, ending);
}

static void send_file(struct api *a, struct http_stream *s, struct sandbox *sb, const char *path)
{
    struct err e;
    struct sending *st = sending_new(a, s, sizeof *st, download_fail);
    name_download(s, path, "");
    if (sending_start(st, sandbox_agent(sb, &e), path, NULL, &e))
        download_fail(st, &e);
}

/* ---- GET: a directory, packed on the way ---- */
struct packing {
    struct req r;
    struct exec *x;
    size_t owed;
    bool begun, failed;
};

static void packing_fini(void *arg)
{
    struct packing *p = arg;
    if (p->x)
        exec_kill(p->x);
}

static void packing_drain(struct http_stream *s, void *arg)
{
    struct packing *p = arg;
    (void)s;
    if (p->x && p->owed)
        exec_consumed(p->x, p->owed);
    p->owed = 0;
}

static void packing_output(void *arg, uint8_t chan, const unsigned char *bytes, size_t n)
{
    struct packing *p = arg;
    if (chan == CH_STDOUT) {
        if (!p->begun) {
            p->begun = true;
            http_on_drain(p->r.s, packing_drain, p);
            (void)http_reply_start(p->r.s, 200, "application/gzip");
        }
        (void)http_write(p->r.s, bytes, n); /* a client that left is a cancel */
    }
    if (http_writable(p->r.s))
        exec_consumed(p->x, n);
    else
        p->owed += n;
}

static void packing_exited(void *arg, const struct exec_exit *x, uint64_t offset)
{
    struct packing *p = arg;
    (void)offset;
    p->failed = x->kind != EXIT_CODE || x->code != 0;
}

static void packing_done(void *arg, const struct err *e)
{
    struct packing *p = arg;
    struct err no;
    p->x = NULL;
    if (p->begun && !e && !p->failed) {
        http_end(p->r.s);
        req_end(&p->r);
    } else if (p->begun) {
        http_abort(p->r.s); /* a part must not pass for the whole */
        req_end(&p->r);
    } else {
        if (!e)
            err_set(&no, E_GUEST, "the directory could not be packed"), e = &no;
        req_fail(&p->r, e, ABOUT_FILE);
    }
}

static void send_directory(struct api *a, struct http_stream *s, struct sandbox *sb,
                           const char *path)
{
    static const struct exec_ops ops = {
        .output = packing_output, .exited = packing_exited, .done = packing_done};
    struct err e;
    char *argv[] = {"/bin/tar", "-czf", "-", "-C", (char *)(uintptr_t)path, ".", NULL};
    struct packing *p = req_new(a, s, sizeof *p, packing_fini);
    name_download(s, path, ".tar.gz");
    p->x = exec_start(sb, &(struct exec_spec){.argv = argv, .cwd = "/"}, &ops, p, &e);
    if (p->x)
        req_watch(&p->r);
    else
        req_fail(&p->r, &e, ABOUT_SANDBOX);
}

struct looking {
    struct req r;
    char id[22];
};

static void download_looked_at(void *arg, const struct err *e, const struct file_entry *en)
{
    struct looking *l = arg;
    struct err gone;
    if (!req_back(&l->r))
        return;
    struct sandbox *sb = sandbox_find(api_core(l->r.api), l->id, &gone);
    if (e || !sb) {
        req_fail(&l->r, e ? e : &gone, ABOUT_FILE);
        return;
    }
    struct http_stream *s = http_ref(l->r.s);
    bool dir = en->type == 'd' || (en->type == 'l' && en->target_type == 'd');
    req_end(&l->r);
    (dir ? send_directory : send_file)(l->r.api, s, sb, en->path);
    http_unref(s);
}

void mcp_download(struct http_stream *s, void *a)
{
    struct opened o;
    struct err e;
    if (!open_link(a, s, 'd', &o))
        return;
    struct looking *l = req_new(a, s, sizeof *l, NULL);
    memcpy(l->id, o.sb->id, sizeof l->id);
    req_hold(&l->r);
    req_settle(&l->r, files_stat(o.sb, o.path, NULL, download_looked_at, l, &e), &e, ABOUT_FILE);
    free(o.path);
}

/* ---- download_file ---- */
static void put_expiry(struct jw *w, int64_t until_s)
{
    char when[32];
    clock_rfc3339(until_s * NS_PER_S, when);
    jw_kv_str(w, "expires_at", when);
}

static void link_looked_at(void *arg, const struct err *e, const struct file_entry *en)
{
    struct mcall *k = arg;
    if (!mcall_back(k))
        return;
    if (e) {
        mcall_fail(k, e, ABOUT_FILE);
        return;
    }
    auto_buf url = {0};
    int64_t until = clock_wall() / NS_PER_S + (int64_t)args_num(k->schema, k->args, "ttl_s", 3600);
    link_make(k->m, k->post->base, 'd', k->sandbox, en->path, until, &url);
    mcall_textf(k, "[%s] %s can be fetched from %s", k->sandbox, en->path, url.p);
    struct jw *w = mcall_structured(k);
    jw_kv_str(w, "sandbox", k->sandbox);
    jw_kv_str(w, "path", en->path);
    jw_kv_str(w, "url", url.p);
    if (en->type == 'f')
        jw_kv_u64(w, "bytes", en->size);
    put_expiry(w, until);
    mcall_done(k);
}

static bool long_path(struct mcall *k, struct str path)
{
    if (path.n && path.n <= 2048)
        return false;
    mcall_refuse(k, "path: 1 to 2048 bytes.");
    return true;
}

void tool_download_file(struct mcall *k, struct sandbox *sb)
{
    struct err e;
    struct str path = args_str(k->schema, k->args, "path");
    if (long_path(k, path))
        return;
    mcall_hold(k);
    mcall_settle(k, files_stat(sb, path.p, NULL, link_looked_at, k, &e), &e, ABOUT_FILE);
}

/* ---- upload_file ---- */
/* Where it will lie, in full: the directory exists or is made, so only its own name is left. */
static void upload_answer(struct mcall *k, const char *path)
{
    auto_buf url = {0};
    int64_t until = clock_wall() / NS_PER_S + UPLOAD_TTL_S;
    link_make(k->m, k->post->base, 'u', k->sandbox, path, until, &url);
    mcall_textf(k, "[%s] PUT the bytes of %s to %s (works once)", k->sandbox, path, url.p);
    struct jw *w = mcall_structured(k);
    jw_kv_str(w, "sandbox", k->sandbox);
    jw_kv_str(w, "path", path);
    jw_kv_str(w, "upload_url", url.p);
    put_expiry(w, until);
    mcall_done(k);
}

struct fetch {
    struct exec *x;
    struct pane out, err;
    int code;
    bool exited;
};

static void fetch_fini(struct mcall *k)
{
    struct fetch *f = k->state;
    if (f->x)
        exec_kill(f->x);
    pane_free(&f->out), pane_free(&f->err);
    free(f);
    k->state = NULL;
}

static void fetch_output(void *arg, uint8_t chan, const unsigned char *bytes, size_t n)
{
    struct mcall *k = arg;
    struct fetch *f = k->state;
    pane_add(chan == CH_STDERR ? &f->err : &f->out, bytes, n);
    exec_consumed(f->x, n);
}

static void fetch_exited(void *arg, const struct exec_exit *x, uint64_t offset)
{
    struct mcall *k = arg;
    struct fetch *f = k->state;
    (void)offset;
    f->exited = true;
    f->code = x->kind == EXIT_CODE ? x->code : 128 + x->code;
}

static void fetch_looked_at(void *arg, const struct err *e, const struct file_entry *en)
{
    struct mcall *k = arg;
    if (!mcall_back(k))
        return;
    if (e) {
        mcall_fail(k, e, ABOUT_FILE);
        return;
    }
    resource_artifact(k->m, k->post->tenant, k->sandbox, en->path,
                      text_mime(en->path, (struct str){"", 0}), en->size);
    mcall_textf(k, "[%s] Fetched %llu bytes into %s.", k->sandbox, (unsigned long long)en->size,
                en->path);
    struct jw *w = mcall_structured(k);
    jw_kv_str(w, "sandbox", k->sandbox);
    jw_kv_str(w, "path", en->path);
    jw_kv_u64(w, "bytes", en->size);
    mcall_done(k);
}

static void fetch_done(void *arg, const struct err *e)
{
    struct mcall *k = arg;
    struct fetch *f = k->state;
    struct err no;
    f->x = NULL;
    auto_buf why = {0};
    (void)pane_render(&f->err, 600, "", &why);
    if (e) {
        mcall_fail(k, e, ABOUT_PROCESS);
    } else if (f->code) {
        mcall_refuse(k,
                     "The URL could not be fetched from inside the sandbox (curl ended with %d): "
                     "%s Its network policy must allow the host (set_network); private addresses "
                     "are refused.",
                     f->code, why.n ? why.p : "");
    } else {
        struct sandbox *sb = mcall_own_sandbox(k, &no);
        mcall_hold(k);
        mcall_settle(k,
                     !sb || files_stat(sb, args_str(k->schema, k->args, "path").p, NULL,
                                       fetch_looked_at, k, &no),
                     &no, ABOUT_FILE);
    }
}

/* Inside, so that exactly what the sandbox may reach can be fetched. */
static void fetch_start(struct mcall *k, struct sandbox *sb, const char *url)
{
    static const struct exec_ops ops = {
        .output = fetch_output, .exited = fetch_exited, .done = fetch_done};
    struct err e;
    auto_buf path = {0};
    const char *to = args_str(k->schema, k->args, "path").p;
    buf_printf(&path, "%s%s", !strncmp(to, "~/", 2) ? to + 2 : to, "");
    char *argv[] = {"curl", "-fsSL", "--proto", "=http,https",          "--create-dirs",
                    "-o",   path.p,  "--",      (char *)(uintptr_t)url, NULL};
    struct fetch *f = xcalloc(1, sizeof *f);
    k->state = f;
    k->fini = fetch_fini;
    f->x = exec_start(sb, &(struct exec_spec){.argv = argv, .timeout_ms = FETCH_MS}, &ops, k, &e);
    if (!f->x)
        mcall_fail(k, &e, ABOUT_SANDBOX);
}

static void upload_looked_at(void *arg, const struct err *e, const struct file_entry *home)
{
    struct mcall *k = arg;
    if (!mcall_back(k))
        return;
    const char *path = args_str(k->schema, k->args, "path").p;
    auto_buf full = {0};
    if (e) {
        mcall_fail(k, e, ABOUT_FILE);
        return;
    }
    if (*path != '/') {
        size_t n = strlen(home->path);
        while (n > 1 && (home->path[n - 1] == '/' || home->path[n - 1] == '.'))
            n--;
        buf_put(&full, home->path, n);
        buf_putc(&full, '/');
        path += !strncmp(path, "~/", 2) ? 2 : !strncmp(path, "./", 2) ? 2 : 0;
    }
    buf_puts(&full, path);
    upload_answer(k, full.p);
}

void tool_upload_file(struct mcall *k, struct sandbox *sb)
{
    struct err e;
    struct str path = args_str(k->schema, k->args, "path");
    struct str url = args_str(k->schema, k->args, "url");
    if (long_path(k, path))
        return;
    if (url.p && !str_starts(url, "http://") && !str_starts(url, "https://")) {
        mcall_refuse(k, "url: must begin with http:// or https://.");
    } else if (url.p) {
        fetch_start(k, sb, url.p);
    } else {
        mcall_hold(k);
        mcall_settle(k, files_stat(sb, "~", NULL, upload_looked_at, k, &e), &e, ABOUT_FILE);
    }
}
