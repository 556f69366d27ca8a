/* hutch template build|ls|rm|import|show. */
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fd.h"
#include "cli/cmds.h"
#include "cli/out.h"
#include "cli/sandbox.h"
#include "cli/tar.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static int done(struct args *a, struct json *t)
{
    if (args_flag(a, "json"))
        json_print(t);
    return 0;
}

/* A file without a name, for bodies whose length must be known first. */
static int temp_file(struct err *e)
{
    const char *dir = getenv("TMPDIR");
    int fd = open(dir && *dir ? dir : "/tmp", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    if (fd < 0)
        fd = memfd_create("hutch-body", MFD_CLOEXEC);
    return fd < 0 ? err_sys(e, errno, "cannot create a temporary file") : fd;
}

static int append_file(int out, int in, struct err *e)
{
    char data[65536];
    ssize_t n;
    while ((n = read(in, data, sizeof data)) > 0)
        if (!fd_write_all(out, data, (size_t)n))
            return err_sys(e, errno, "cannot write a temporary file");
    return n < 0 ? err_sys(e, errno, "cannot read the recipe") : 0;
}

static int put_network(struct cli *x, int body, const char *boundary, const char *net)
{
    auto_buf b = {0};
    struct jw w;
    if (!net)
        return 0;
    jw_init(&w, &b);
    if (json_network(x, &w, net))
        return -1;
    if (dprintf(body, "\r\n--%s\r\nContent-Disposition: form-data; name=\"network\"\r\nContent-Type: application/json\r\n\r\n%s", boundary, b.p) < 0)
        return err_sys(&x->err, errno, "cannot write a temporary file");
    return 0;
}

static int build_recipe(struct cli *x, struct args *a, const char *file, const char *context, struct json **ret)
{
    char boundary[48], type[96];
    id_make('b', boundary);
    (void)snprintf(type, sizeof type, "multipart/form-data; boundary=%s", boundary);
    auto_fd in = !strcmp(file, "-") ? dup(STDIN_FILENO) : open(file, O_RDONLY | O_CLOEXEC), body = temp_file(&x->err);
    if (body < 0)
        return -1;
    if (in < 0)
        return err_sys(&x->err, errno, "cannot open '%.100s'", file);
    if (dprintf(body, "--%s\r\nContent-Disposition: form-data; name=\"recipe\"\r\nContent-Type: text/plain\r\n\r\n", boundary) < 0 || append_file(body, in, &x->err))
        return -1;
    if (context && (dprintf(body, "\r\n--%s\r\nContent-Disposition: form-data; name=\"context\"; filename=\"context.tar\"\r\n"
                                  "Content-Type: application/x-tar\r\n\r\n", boundary) < 0 || tar_write_dir(body, context, &x->err)))
        return err_wrap(&x->err, "packing the context");
    if (put_network(x, body, boundary, args_str(a, "net", NULL)))
        return -1;
    if (dprintf(body, "\r\n--%s--\r\n", boundary) < 0)
        return err_sys(&x->err, errno, "cannot write a temporary file");
    off_t len = lseek(body, 0, SEEK_END);
    (void)lseek(body, 0, SEEK_SET);
    auto_free char *t = url("/v1/templates/{}/build", a->v[0]);
    url_arg(&t, "force", args_flag(a, "force") ? "1" : NULL);
    return build_run(x, t, NULL, body, len, type, ret);
}

static int exec_build(struct cli *x, struct args *a)
{
    const char *file = args_str(a, "file", NULL), *context = args_str(a, "context", NULL);
    auto_json t = NULL;
    if (!file && (context || args_str(a, "net", NULL)))
        return cli_usage(x, "template build: --context and --net need --file");
    int rc = file ? build_recipe(x, a, file, context, &t) : build_builtin(x, a->v[0], args_str(a, "builtin", a->v[0]), args_flag(a, "force"), &t);
    return rc ? cli_fail(x) : done(a, t);
}

static int exec_import(struct cli *x, struct args *a)
{
    struct stat st;
    auto_fd fd = !strcmp(a->v[1], "-") ? dup(STDIN_FILENO) : open(a->v[1], O_RDONLY | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &st)) {
        (void)err_sys(&x->err, errno, "cannot open '%.100s'", a->v[1]);
        return cli_fail(x);
    }
    auto_free char *t = url("/v1/templates/{}/import", a->v[0]);
    auto_json j = NULL;
    if (build_run(x, t, NULL, fd, S_ISREG(st.st_mode) ? st.st_size : -1, "application/x-tar", &j))
        return cli_fail(x);
    return done(a, j);
}

static void warm_list(struct json *t, struct buf *out)
{
    struct json *w = json_get(t, "warm");
    for (size_t i = 0; i < json_len(w); i++) {
        struct str s = {"", 0};
        (void)json_to_str(json_at(w, i), &s, NULL);
        if (i)
            buf_putc(out, ',');
        buf_put(out, s.p, s.n);
    }
}

static int exec_ls(struct cli *x, struct args *a)
{
    static const char *const heads[] = {"NAME", "ID", "SOURCE", "PARENT", ">SIZE", "WARM", "AGE", NULL};
    auto_json j = NULL;
    if (api_call(x, "GET", "/v1/templates", NULL, &j))
        return cli_fail(x);
    struct json *list = json_get(j, "templates");
    if (args_flag(a, "json")) {
        json_print(list);
        return 0;
    }
    struct table *t = table_new(heads);
    for (size_t i = 0; i < json_len(list); i++) {
        struct json *e = json_at(list, i);
        int64_t created = jget_time(e, "created_at");
        char size[24], age[24];
        auto_buf warm = {0};
        bytes_format(jget_i64(e, "size_bytes", -1), size);
        dur_format(created ? clock_wall() - created : -1, age);
        warm_list(e, &warm);
        table_cell(t, ST_PLAIN, jget_str(e, "name", ""));
        table_cell(t, ST_PLAIN, jget_str(e, "id", ""));
        table_cell(t, ST_PLAIN, jget_str(e, "source", ""));
        table_cell(t, ST_PLAIN, jget_str(e, "parent", ""));
        table_cell(t, ST_PLAIN, size);
        table_cell(t, ST_PLAIN, warm.p);
        table_cell(t, ST_PLAIN, age);
    }
    table_print(t);
    return 0;
}

static int exec_show(struct cli *x, struct args *a)
{
    static const char *const keys[] = {"name", "id", "source", "parent", "created_at"};
    auto_free char *target = url("/v1/templates/{}", a->v[0]);
    auto_json t = NULL;
    if (api_call(x, "GET", target, NULL, &t))
        return cli_fail(x);
    if (args_flag(a, "json")) {
        json_print(t);
        return 0;
    }
    auto_buf out = {0}, warm = {0};
    char size[24];
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        buf_printf(&out, "%-12s ", keys[i]);
        esc_put(&out, str_of(jget_str(t, keys[i], "-")));
        buf_putc(&out, '\n');
    }
    bytes_format(jget_i64(t, "size_bytes", -1), size);
    warm_list(t, &warm);
    buf_printf(&out, "%-12s %s\n%-12s %lld MiB\n%-12s ", "size", size, "disk min", (long long)jget_i64(t, "disk_min_mib", 0), "warm");
    esc_put(&out, str_of(warm.n ? warm.p : "-"));
    (void)printf("%s\n", out.p);
    return 0;
}

static int rm_one(struct cli *x, struct args *a, const char *name, void *ctx)
{
    auto_free char *t = url("/v1/templates/{}", name);
    (void)a, (void)ctx;
    return api_call(x, "DELETE", t, NULL, NULL);
}

static int exec_rm(struct cli *x, struct args *a) { return each_arg(x, a, rm_one, NULL); }

static const struct opt json_opts[] = {OPT_JSON, OPT_END};
static const struct opt build_opts[] = {{"file", 'f', 's', "RECIPE", "a recipe file; - reads it from standard input", "@file"},
                                        {"context", 'c', 's', "DIR", "the directory that COPY reads from", "@file"},
                                        {"net", 0, 's', "MODE", "what RUN steps may reach: none, open or allow=host,@preset,… (none)", "none open allow="},
                                        {"builtin", 0, 's', "NAME", "a built-in recipe (default: the one with the template's name)", "base code-interpreter isolate"},
                                        {"force", 0, 'f', NULL, "build again even if nothing changed", NULL},
                                        OPT_JSON,
                                        OPT_END};
static const struct cmd t_build = {.name = "build", .usage = "NAME [-f RECIPE [-c DIR] [--net MODE]]", .help = "build a template", .opts = build_opts, .min = 1, .max = 1, .words = "@template", .exec = exec_build};
static const struct cmd t_ls = {.name = "ls", .usage = "", .help = "list templates", .opts = json_opts, .exec = exec_ls};
static const struct cmd t_show = {.name = "show", .usage = "NAME", .help = "show a template", .opts = json_opts, .min = 1, .max = 1, .words = "@template", .exec = exec_show};
static const struct cmd t_rm = {.name = "rm", .usage = "NAME…", .help = "remove templates", .min = 1, .max = -1, .words = "@template", .exec = exec_rm};
static const struct cmd t_import = {.name = "import", .usage = "NAME FILE|-", .help = "create a template from an OCI layout or docker-archive tar", .opts = json_opts, .min = 2, .max = 2, .words = "@template;@file", .exec = exec_import};
static const struct cmd *const subs[] = {&t_build, &t_ls, &t_show, &t_rm, &t_import, NULL};
const struct cmd cmd_template = {.name = "template", .usage = "build|ls|show|rm|import", .help = "manage templates, which sandboxes start from", .sub = subs};
