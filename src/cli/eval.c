#include "cli/eval.h"
#include "base/cleanup.h"
#include "base/enc.h"
#include "cli/ndjson.h"
#include "cli/out.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct show {
    struct cli *x;
    const char *dir;
    int pictures, status;
    bool ended, unsaved;
};

static void raw(FILE *f, struct json *ev, const char *key)
{
    struct str s = {"", 0};
    (void)json_str(ev, key, &s, false, NULL);
    (void)fwrite(s.p, 1, s.n, f); /* checked at the end of cli_main */
    (void)fflush(f);
}

/* Text of a result or a traceback: escaped, but with its lines. */
static void lines_out(FILE *f, const char *text)
{
    auto_buf out = {0};
    while (*text) {
        size_t n = strcspn(text, "\n");
        esc_put(&out, (struct str){text, n});
        buf_putc(&out, '\n');
        text += n + (text[n] == '\n');
    }
    (void)fwrite(out.p ? out.p : "", 1, out.n, f);
}

static void save(struct show *w, const char *base64, const char *ext)
{
    auto_buf b = {0};
    char path[4200];
    int fd = -1;
    if (!base64_decode(base64, strlen(base64), &b))
        return;
    while (fd < 0) { /* never over a file that is there */
        (void)snprintf(path, sizeof path, "%s/eval-%d.%s", w->dir, ++w->pictures, ext);
        fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
        if (fd < 0 && errno != EEXIST)
            break;
    }
    if (fd < 0 || write(fd, b.p, b.n) != (ssize_t)b.n)
        (void)fprintf(stderr, "hutch: cannot save %s: %s\n", path, strerror(errno)),
            w->unsaved = true;
    else
        (void)fprintf(stderr, "hutch: saved %s\n", !strncmp(path, "./", 2) ? path + 2 : path);
    if (fd >= 0)
        (void)close(fd);
}

static void on_result(struct show *w, struct json *ev)
{
    static const struct { const char *type, *ext; } pictures[] = {{"image/png", "png"}, {"image/jpeg", "jpg"}, {"application/pdf", "pdf"}};
    struct json *data = json_get(ev, "data");
    const char *text = jget_str(data, "text/plain", NULL), *svg = jget_str(data, "image/svg+xml", NULL);
    bool saved = false;
    for (size_t i = 0; i < sizeof pictures / sizeof *pictures; i++) {
        const char *v = jget_str(data, pictures[i].type, NULL);
        if (v)
            save(w, v, pictures[i].ext), saved = true;
    }
    if (!saved && svg) {
        auto_buf b = {0};
        base64_encode(svg, strlen(svg), &b);
        save(w, b.p, "svg"), saved = true;
    }
    static const char *const others[] = {"text/markdown", "text/latex", "text/html"};
    for (size_t i = 0; !text && i < sizeof others / sizeof *others; i++)
        text = jget_str(data, others[i], NULL);
    if (text && !saved)
        lines_out(stdout, text);
    (void)fflush(stdout);
}

static void on_end(struct show *w, struct json *ev)
{
    const char *status = jget_str(ev, "status", "lost");
    struct json *problem = json_get(ev, "problem");
    w->ended = true;
    if (!strcmp(status, "ok"))
        w->status = 0;
    else if (!strcmp(status, "error") || !strcmp(status, "interrupted"))
        w->status = 1;
    else if (problem) {
        api_problem_json(w->x, problem);
        w->status = cli_fail(w->x);
    }
}

static void on_line(struct show *w, struct str line)
{
    auto_json ev = json_parse_obj(line.p, line.n, NULL);
    const char *what = jget_str(ev, "event", "");
    if (!strcmp(what, "stdout"))
        raw(stdout, ev, "text");
    else if (!strcmp(what, "stderr"))
        raw(stderr, ev, "text");
    else if (!strcmp(what, "result"))
        on_result(w, ev);
    else if (!strcmp(what, "error"))
        lines_out(stderr, *jget_str(ev, "traceback", "") ? jget_str(ev, "traceback", "") : jget_str(ev, "name", "error"));
    else if (!strcmp(what, "end"))
        on_end(w, ev);
}

void eval_template(struct cli *x, struct args *a)
{
    const struct opt *o = a->cmd->opts;
    struct cli quiet = *x;
    auto_json t = NULL;
    if (args_str(a, "template", NULL) || a->nset == ARGS_OPTS_MAX || api_call(&quiet, "GET", "/v1/templates/code-interpreter", NULL, &t))
        return;
    while (o->name && strcmp(o->name, "template"))
        o++;
    if (!o->name)
        return;
    a->set[a->nset].opt = o;
    a->set[a->nset++].value = "code-interpreter";
}

int eval_show(struct cli *x, struct args *a, const char *id, const char *language, const char *code)
{
    struct show w = {.x = x, .dir = args_str(a, "save", "."), .status = 1};
    auto_free char *target = url("/v1/sandboxes/{}/eval", id);
    auto_buf body = {0};
    struct jw j;
    struct str line;
    if (mkdir(w.dir, 0777) && errno != EEXIST) {
        (void)err_sys(&x->err, errno, "cannot create the directory '%.100s'", w.dir);
        return cli_fail(x);
    }
    jw_init(&j, &body);
    jw_obj(&j);
    jw_kv_str(&j, "code", code);
    if (language)
        jw_kv_str(&j, "language", language);
    jw_kv_bool(&j, "stream", true);
    jw_end(&j);
    auto_client c = api_open(x);
    if (!c || api_send(x, c, "POST", target, &body) || api_check(x, c))
        return cli_fail(x);
    struct lines l = {.c = c, .sigfd = -1};
    enum lines_got got;
    while ((got = lines_next(&l, -1, &line, &x->err)) == LINES_LINE || got == LINES_TICK)
        if (got == LINES_LINE)
            on_line(&w, line);
    splitter_free(&l.split);
    if (got == LINES_BROKEN)
        return cli_fail(x);
    if (!w.ended) {
        (void)err_set(&x->err, E_UNAVAILABLE,
                      "the server closed the stream before the cell finished");
        return cli_fail(x);
    }
    return w.unsaved && !w.status ? 74 /* EX_IOERR */ : w.status;
}
