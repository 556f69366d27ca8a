/* Builds of templates: announce, upload files, start. A build runs on in
 * the background; its log is kept in memory, its result in the catalogue.
 * Uploaded archives are kept by the hash the SDK gives them in HOME/cache. */
#include "api/e2b/control.h"
#include "api/e2b/e2b.h"
#include "api/gate.h"
#include "api/native/native.h"
#include "api/params.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/enc.h"
#include "base/fd.h"
#include "core/network.h"
#include "crypto/digest.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#define UPLOAD_MAX (2ull << 30)
#define LOG_MAX    20000
#define URL_NS     (3600 * NS_PER_S)
#define FILES_KEPT_NS (7 * 24 * 3600 * NS_PER_S)
#define BUILD_NETWORK "{\"mode\":\"open\"}" /* E2B's default; behind the gate like any other */

static struct e2b_template *find_template(struct http_stream *s, struct api *a)
{
    struct str id = http_param(s, "tid");
    struct e2b_template *t = catalogue_get(api_e2b(a), id.p);
    if (!t)
        e2b_problem(s, 404, "template '%.64s' not found", id.p);
    return t;
}

struct e2b_build *e2b_find_build(struct http_stream *s, struct api *a)
{
    struct e2b_template *t = find_template(s, a);
    struct e2b_build *b = t ? catalogue_build(t, http_param(s, "bid").p) : NULL;
    if (t && !b)
        e2b_problem(s, 404, "build '%.64s' not found", http_param(s, "bid").p);
    return b;
}

/* ---- announce ---- */
static int read_tags(struct json *j, struct kv *tags, struct err *e)
{
    struct json *list = NULL;
    if (json_arr(j, "tags", &list, false, e))
        return -1;
    for (size_t i = 0; i < json_len(list); i++) {
        struct str t;
        if (json_to_str(json_at(list, i), &t, e))
            return -1;
        struct e2b_ref r;
        const char *colon = strchr(t.p, ':'); /* "name:tag" is taken for its tag */
        if (colon && e2b_ref_parse(t.p, &r, e))
            return err_set(e, E_INVALID, "Invalid tag: '%.100s'", t.p);
        char tag[E2B_NAME_MAX];
        if (!e2b_tag_read(colon ? r.tag : t.p, tag))
            return err_set(e, E_INVALID, "Invalid tag: '%.100s'", t.p);
        kv_set(tags, str_of(tag), S(""));
    }
    return 0;
}

static void on_new(struct http_stream *s, void *a, const char *p, size_t n)
{
    struct err e;
    struct str name = {0};
    struct e2b_ref ref;
    struct kv tags = {0};
    int64_t cpu, mem;
    auto_json j = json_parse_obj(p, n, &e);
    if (j && json_str(j, "name", &name, false, &e) == 0 && !name.p)
        (void)json_str(j, "alias", &name, false, NULL); /* v2's word for it */
    int bad = !j || (!name.p && err_set(&e, E_INVALID, "name: missing")) || e2b_ref_parse(name.p, &ref, &e) || read_tags(j, &tags, &e) ||
              json_i64(j, "cpuCount", 1, 64, 0, &cpu, &e) || json_i64(j, "memoryMB", 128, 65536, 0, &mem, &e);
    if (bad) {
        kv_free(&tags);
        e2b_fail(s, &e);
        return;
    }
    struct e2b *x = api_e2b(a);
    struct e2b_template *t = catalogue_get(x, ref.name);
    if (!t)
        t = catalogue_add(x, ref.name);
    if (cpu)
        t->cpu = (uint32_t)cpu;
    if (mem)
        t->memory_mib = (uint32_t)mem;
    struct e2b_build *b = catalogue_add_build(t);
    b->api = a;
    b->tags = tags;
    if (*ref.tag)
        kv_set(&b->tags, str_of(ref.tag), S(""));
    if (!b->tags.n)
        kv_set(&b->tags, S("default"), S(""));
    catalogue_save(x);
    struct buf out = {0};
    struct jw w;
    jw_init(&w, &out);
    jw_obj(&w);
    jw_kv_str(&w, "templateID", t->id);
    jw_kv_str(&w, "buildID", b->id);
    jw_kv_bool(&w, "public", false);
    jw_kv_arr(&w, "names");
    char full[E2B_NAME_MAX + 16];
    (void)snprintf(full, sizeof full, E2B_NAMESPACE "/%s", t->name);
    jw_strz(&w, full);
    jw_end(&w);
    jw_kv_arr(&w, "aliases");
    jw_strz(&w, t->name);
    jw_end(&w);
    jw_kv_arr(&w, "tags");
    for (size_t i = 0; i < b->tags.n; i++)
        jw_strz(&w, b->tags.at[i].k);
    jw_end(&w);
    jw_end(&w);
    reply_json(s, 202, &out);
}
void e2b_template_new(struct http_stream *s, void *a) { e2b_body(s, a, on_new); }

/* ---- files ---- */
static bool hash_ok(struct str h)
{
    for (size_t i = 0; i < h.n; i++)
        if (!((h.p[i] >= '0' && h.p[i] <= '9') || (h.p[i] >= 'a' && h.p[i] <= 'f')))
            return false;
    return h.n == 64;
}

static void file_path(struct api *a, const char *hash, char out[320])
{
    (void)snprintf(out, 320, "%s/cache/e2b-%s.tgz", core_config(api_core(a))->home, hash);
}

/* Archives of a week ago are not going to be asked for; if they are, the SDK sends them again. */
static void sweep_files(struct api *a)
{
    char path[300];
    struct stat st;
    (void)snprintf(path, sizeof path, "%s/cache", core_config(api_core(a))->home);
    DIR *d = opendir(path);
    if (!d)
        return;
    for (const struct dirent *de; (de = readdir(d));)
        if (!strncmp(de->d_name, "e2b-", 4) && !fstatat(dirfd(d), de->d_name, &st, AT_SYMLINK_NOFOLLOW) &&
            (int64_t)st.st_mtime * NS_PER_S < clock_wall() - FILES_KEPT_NS)
            (void)unlinkat(dirfd(d), de->d_name, 0); /* the next sweep tries again */
    closedir(d);
}

static void sign(struct e2b *x, const char *hash, long long until, char hex[65])
{
    unsigned char mac[SHA256_BYTES];
    char text[128];
    (void)snprintf(text, sizeof text, "%s %lld", hash, until);
    hmac_sha256(x->secret, sizeof x->secret, text, strlen(text), mac);
    hex_encode(mac, sizeof mac, hex);
}

void e2b_build_file(struct http_stream *s, void *a)
{
    struct str hash = http_param(s, "hash"), host = http_head(s)->host;
    struct e2b_template *t = find_template(s, a);
    if (!t)
        return;
    if (!hash_ok(hash)) {
        e2b_problem(s, 400, "the hash must have 64 hexadecimal digits");
        return;
    }
    char path[320], mac[65];
    long long until = (clock_wall() + URL_NS) / NS_PER_S;
    file_path(a, hash.p, path);
    sign(api_e2b(a), hash.p, until, mac);
    struct buf b = {0};
    auto_buf url = {0};
    struct jw w;
    buf_printf(&url, "%s://%.*s/templates/%s/files/%s?until=%lld&signature=%s", str_ieqz(http_req_header(s, "X-Forwarded-Proto"), "https") ? "https" : "http",
               (int)host.n, host.p, t->id, hash.p, until, mac);
    jw_init(&w, &b);
    jw_obj(&w);
    jw_kv_bool(&w, "present", !utimensat(AT_FDCWD, path, NULL, 0)); /* and so kept for a while more */
    jw_kv_str(&w, "url", url.p);
    jw_end(&w);
    reply_json(s, 201, &b);
}

struct upload { struct req r; int fd; uint64_t got; char hash[65], tmp[352]; };

static void upload_fini(void *arg)
{
    struct upload *u = arg;
    if (u->fd >= 0) {
        (void)close(u->fd);
        (void)unlink(u->tmp); /* unfinished */
    }
}

static void on_upload(struct http_stream *s, void *arg, const char *p, size_t n)
{
    struct upload *u = arg;
    struct err e;
    (void)s;
    if (u->r.over)
        return;
    u->got += n;
    if (u->got > UPLOAD_MAX)
        err_set(&e, E_TOO_LARGE, "the archive is over the limit of %llu MiB", UPLOAD_MAX >> 20);
    else if (fd_write_all(u->fd, p, n))
        return;
    else
        err_set(&e, errno == ENOSPC || errno == EDQUOT ? E_QUOTA : E_INTERNAL, "the upload could not be stored; is the disk full?");
    e2b_req_fail(&u->r, &e);
}

static void on_uploaded(struct http_stream *s, void *arg)
{
    struct upload *u = arg;
    char path[320];
    if (u->r.over)
        return;
    file_path(u->r.api, u->hash, path);
    (void)close(take_fd(&u->fd));
    if (rename(u->tmp, path))
        e2b_problem(s, 500, "the upload could not be stored");
    else
        http_reply(s, 200, NULL, "", 0);
    req_end(&u->r);
    sweep_files(u->r.api);
}

void e2b_build_upload(struct http_stream *s, void *a)
{
    auto_buf until = {0}, sig = {0};
    const char *u = param_str(s, "until", &until), *got = param_str(s, "signature", &sig);
    struct str hash = http_param(s, "hash");
    char want[65] = "";
    int64_t t = 0;
    if (u && hash_ok(hash) && str_i64(str_of(u), &t))
        sign(api_e2b(a), hash.p, t, want);
    if (!*want || !got || strlen(got) != 64 || !mem_eq_ct(got, want, 64) || t < clock_wall() / NS_PER_S) {
        e2b_problem(s, 403, "this upload URL is not valid, or not any more");
        return;
    }
    struct upload *up = req_new(a, s, sizeof *up, upload_fini);
    char nonce[9];
    token_make("", 4, nonce);
    memcpy(up->hash, hash.p, 65);
    file_path(a, up->hash, up->tmp);
    (void)strcat(up->tmp, ".");
    (void)strcat(up->tmp, nonce);
    up->fd = open(up->tmp, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (up->fd < 0) {
        e2b_problem(s, 500, "the upload could not be stored");
        req_end(&up->r);
        return;
    }
    req_watch(&up->r);
    http_body_stream(s, on_upload, on_uploaded, up);
}

/* ---- the build itself ---- */
static void say(struct e2b_build *b, const char *level, const char *text, const char *step)
{
    if (b->nlog >= LOG_MAX)
        return;
    if (b->nlog == b->caplog)
        b->log = xrealloc(b->log, (b->caplog = b->caplog ? b->caplog * 2 : 64) * sizeof *b->log);
    struct log_line *l = &b->log[b->nlog++];
    *l = (struct log_line){.at_ns = clock_wall(), .level = level, .text = xstrdup(text)};
    (void)snprintf(l->step, sizeof l->step, "%s", step ? step : "");
}

static void failed(struct e2b_build *b, const char *message, const char *step)
{
    b->state = BUILD_ERROR;
    free(b->error);
    b->error = xstrdup(message);
    (void)snprintf(b->error_step, sizeof b->error_step, "%s", step);
    say(b, "error", message, step);
    catalogue_save(api_e2b(b->api));
}

static bool core_wanted(struct e2b *x, const struct e2b_build *except)
{
    struct e2b_template *t;
    struct e2b_build *b;
    list_each(t, &x->templates, link)
        list_each(b, &t->builds, link)
            if (b != except && !strcmp(b->core_id, except->core_id))
                return true;
    return false;
}

static bool tagged(const struct e2b_build *b)
{
    for (size_t i = 0; i < b->t->tags.n; i++)
        if (!strcmp(b->t->tags.at[i].v, b->id))
            return true;
    return false;
}

/* Builds that no tag points at any more cannot be asked for: what they stand on goes, unless something still runs on it. */
static void prune(struct e2b *x, struct e2b_template *t, const struct e2b_build *newest)
{
    struct e2b_build *b;
    struct err e;
    list_each(b, &t->builds, link) {
        if (b == newest || b->state != BUILD_READY || tagged(b))
            continue;
        struct template *c = template_find(api_core(x->api), b->core_id, NULL);
        if (c && !core_wanted(x, b) && (c->users || template_remove(api_core(x->api), c, NULL, NULL, &e)))
            continue; /* next time */
        build_drop(b);
    }
}

static void succeeded(struct e2b_build *b, const char *core_id)
{
    (void)snprintf(b->core_id, sizeof b->core_id, "%s", core_id);
    b->state = BUILD_READY;
    for (size_t i = 0; i < b->tags.n; i++)
        catalogue_tag(b->t, b->tags.at[i].k, b->id);
    say(b, "info", "Build finished", "finalize");
    prune(api_e2b(b->api), b->t, b);
    catalogue_save(api_e2b(b->api));
}

static void on_progress(void *arg, int percent, const char *step)
{
    struct e2b_build *b = arg;
    (void)percent;
    bool kept = step && !strncmp(step, "CACHED ", 7);
    if (step && !strncmp(kept ? step + 7 : step, "USER", 4))
        return; /* ours, not the caller's */
    if (step && !strncmp(step, "unpacking:", 10))
        return; /* ten a second */
    if (step && strstr(step, "/.hutch-context"))
        step = kept ? "CACHED COPY" : "COPY";
    say(b, "info", step ? step : "", NULL);
}
static void on_log(void *arg, const char *line) { say(arg, "info", line, NULL); }
static void on_done(void *arg, const struct template *t, const struct err *e)
{
    struct e2b_build *b = arg;
    b->core = NULL;
    if (t) {
        succeeded(b, t->id);
        return;
    }
    auto_buf msg = {0};
    char step[12];
    e2b_build_message(&b->lines, e ? e->msg : "the build ended without a template", &msg, step);
    failed(b, msg.p, step);
}

/* One ustar member; the size is known. */
static bool put_member(int fd, const char *name, int from, uint64_t size)
{
    char h[512] = {0}, chunk[65536];
    unsigned sum = 0;
    (void)snprintf(h, 100, "%s", name);
    (void)snprintf(h + 100, 8, "%07o", 0600);
    (void)snprintf(h + 108, 8, "%07o", 0);
    (void)snprintf(h + 116, 8, "%07o", 0);
    (void)snprintf(h + 124, 12, "%011llo", (unsigned long long)size);
    (void)snprintf(h + 136, 12, "%011o", 0);
    memset(h + 148, ' ', 8);
    h[156] = '0';
    memcpy(h + 257, "ustar\0" "00", 8);
    for (size_t i = 0; i < sizeof h; i++)
        sum += (unsigned char)h[i];
    (void)snprintf(h + 148, 8, "%06o", sum);
    if (!fd_write_all(fd, h, sizeof h))
        return false;
    for (uint64_t left = size; left;) {
        ssize_t n = read(from, chunk, left < sizeof chunk ? (size_t)left : sizeof chunk);
        if (n <= 0 || !fd_write_all(fd, chunk, (size_t)n))
            return false;
        left -= (uint64_t)n;
    }
    memset(chunk, 0, 512);
    return !(size % 512) || fd_write_all(fd, chunk, 512 - size % 512);
}

static int make_context(struct api *a, const struct kv *files, struct err *e)
{
    static const char end[1024];
    auto_fd fd = build_tempfile(api_core(a), e);
    if (fd < 0)
        return -1;
    for (size_t i = 0; i < files->n; i++) {
        char path[320], name[80];
        struct stat st;
        file_path(a, files->at[i].k, path);
        (void)snprintf(name, sizeof name, "%s.tgz", files->at[i].k);
        auto_fd from = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
        if (from < 0 || fstat(from, &st))
            return err_set(e, E_INVALID, "the files with hash %.16s… were not uploaded", files->at[i].k);
        if (!put_member(fd, name, from, (uint64_t)st.st_size))
            return err_set(e, E_QUOTA, "the build context could not be stored; is the disk full?");
    }
    if (!fd_write_all(fd, end, sizeof end) || lseek(fd, 0, SEEK_SET))
        return err_set(e, E_QUOTA, "the build context could not be stored; is the disk full?");
    return take_fd(&fd);
}

static int find_base(struct api *a, struct json *j, struct e2b_found *f, struct err *e)
{
    struct str image = {0}, from = {0};
    char name[64];
    if (json_str(j, "fromImage", &image, false, e) || json_str(j, "fromTemplate", &from, false, e))
        return -1;
    if (from.n)
        return catalogue_resolve(api_e2b(a), from.p, f, e);
    if (!image.n)
        image = S("e2bdev/base");
    if (catalogue_resolve(api_e2b(a), e2b_image_template(image.p, name), f, NULL))
        return err_set(e, E_NOT_FOUND, "image '%.80s' is not on this host, and images are not pulled here. Import it first: docker save %.40s | hutch template import %s -",
                       image.p, image.p, name);
    return 0;
}

/* Same base, same steps, same files: same template, the newest if one was told to build anew. */
static const struct e2b_build *same_build(struct e2b *x, const char *key)
{
    struct e2b_template *t;
    struct e2b_build *b;
    const struct e2b_build *same = NULL;
    list_each(t, &x->templates, link)
        list_each(b, &t->builds, link)
            if (b->state == BUILD_READY && !strcmp(b->key, key) && (!same || b->created_ns > same->created_ns) && template_find(api_core(x->api), b->core_id, NULL))
                same = b;
    return same;
}

static void core_name(struct e2b_build *b)
{
    size_t n = 0;
    for (const char *p = b->t->name; *p && n < 40; p++)
        b->core_name[n++] = *p == '_' ? '-' : *p;
    if (b->core_name[0] == '-')
        b->core_name[0] = 'x';
    (void)snprintf(b->core_name + n, sizeof b->core_name - n, "-%.8s", b->id);
}

static void start_core(struct e2b_build *b, struct e2b_recipe *r)
{
    static const struct build_ops ops = {.progress = on_progress, .log = on_log, .done = on_done};
    struct err e;
    auto_buf all = {0};
    buf_put(&all, r->text.p, r->text.n);
    sha256_hex(all.p, all.n, b->key); /* names the base by id and the files by hash */
    const struct e2b_build *same = r->cached_line < r->line ? NULL : same_build(api_e2b(b->api), b->key);
    if (same) {
        say(b, "info", "CACHED: the same steps were built before", NULL);
        succeeded(b, same->core_id);
        return;
    }
    int ctx = r->files.n ? make_context(b->api, &r->files, &e) : -1;
    if (r->files.n && ctx < 0) {
        failed(b, e.msg, "base");
        return;
    }
    core_name(b);
    struct recipe_spec spec = {.name = b->core_name, .text = {r->text.p, r->text.n}, .context_fd = ctx, .force = true, .cached_line = r->cached_line, .tenant = b->tenant};
    struct network_spec net = {0};
    auto_json open = json_parse_obj(BUILD_NETWORK, sizeof BUILD_NETWORK - 1, &e);
    if (network_parse(api_core(b->api), open, &net, &e)) {
        failed(b, e.msg, "base");
        return;
    }
    spec.network = &net;
    b->core = build_recipe(api_core(b->api), &spec, &ops, b, &e);
    network_spec_free(&net);
    if (!b->core && b->state == BUILD_BUILDING) {
        auto_buf msg = {0};
        char step[12];
        e2b_build_message(&b->lines, e.msg, &msg, step);
        failed(b, msg.p, step);
    }
}

static void on_start(struct http_stream *s, void *a, const char *p, size_t n)
{
    struct err e = {0};
    struct e2b_found f;
    struct e2b_recipe r = {0};
    struct e2b_build *b = e2b_find_build(s, a);
    if (!b)
        return;
    if (b->state != BUILD_WAITING) {
        e2b_problem(s, 400, "build is not in waiting state");
        return;
    }
    auto_json j = json_parse_obj(p, n, &e);
    if (!j) {
        e2b_fail(s, &e);
        return;
    }
    b->state = BUILD_BUILDING;
    b->started_ns = clock_mono();
    b->api = a;
    b->tenant = xstrdup(gate_tenant(api_core(a), s));
    if (find_base(a, j, &f, &e)) {
        say(b, "info", "Building template", "base");
        failed(b, e.msg, "base");
    } else {
        const struct template *t = template_find(api_core(a), f.core_id, NULL);
        if (e2b_steps(j, f.core_id, t->user, t->workdir, &r, &e)) {
            b->state = BUILD_WAITING;
            free(take_ptr(&b->tenant));
            e2b_fail(s, &e);
            e2b_recipe_fini(&r);
            return;
        }
        kv_copy(&b->lines, &r.lines);
        say(b, "info", "Building template", "base");
        start_core(b, &r);
    }
    e2b_recipe_fini(&r);
    http_reply(s, 202, NULL, "", 0);
}
void e2b_build_start(struct http_stream *s, void *a) { e2b_body(s, a, on_start); }
