/* See recipe.h. One function per instruction behind a table; the table also
 * holds what Docker knows and this does not. */
#include "image/recipe.h"
#include "base/cleanup.h"
#include "base/str.h"
#include "image/recipe_lex.h"
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

struct parse { struct recipe *r; struct recipe_step *s; /* the step being filled, for instructions that make one */ int line; };

static bool chars_ok(const char *s, const char *extra)
{
    if (!*s)
        return false;
    for (; *s; s++)
        if (!isalnum((unsigned char)*s) && !strchr(extra, *s))
            return false;
    return true;
}

static bool env_name_ok(const char *s) { return chars_ok(s, "_") && !isdigit((unsigned char)*s); }
static bool owner_ok(const char *s)
{
    const char *colon = strchr(s, ':');
    return chars_ok(s, "._-:") && *s != ':' && *s != '-' && (!colon || (colon[1] && !strchr(colon + 1, ':')));
}

static void words_give(struct parse *ps, struct lex_words *w)
{
    ps->s->word = w->v;
    ps->s->nwords = w->n;
    *w = (struct lex_words){0};
}

/* ---- instructions ----------------------------------------------------------------------------------------------- */

static int on_from(struct parse *ps, const char *p, struct err *e)
{
    auto_buf w = {0};
    if (ps->r->from)
        return err_why(e, REASON_BAD_RECIPE, E_UNSUPPORTED, "line %d: a second FROM: multi-stage recipes are not supported", ps->line);
    if (*p == '-')
        return err_why(e, REASON_BAD_RECIPE, E_UNSUPPORTED, "line %d: FROM takes no options",
                       ps->line);
    int rc = lex_word(&p, &w, ps->line, e);
    if (rc <= 0)
        return rc < 0 ? -1
                      : err_why(e, REASON_BAD_RECIPE, E_INVALID, "line %d: FROM needs a template",
                                ps->line);
    if (*p)
        return err_why(e, REASON_BAD_RECIPE, E_UNSUPPORTED, "line %d: FROM takes one name; multi-stage recipes are not supported", ps->line);
    char *colon = strchr(w.p, ':');
    struct str name = {w.p, colon ? (size_t)(colon - w.p) : w.n}, tag = {colon ? colon + 1 : "", colon ? strlen(colon + 1) : 0};
    if (!name_ok(name) || (colon && (tag.n > 63 || !chars_ok(tag.p, "._-"))))
        return err_why(e, REASON_BAD_RECIPE, E_INVALID, "line %d: FROM: not a template name. Images are not pulled: `podman save -o image.tar IMAGE`, then `hutch template import NAME image.tar` and FROM NAME",
                       ps->line);
    if (str_eqz(name, "debian")) {
        if (!str_eqz(tag, "12") && !str_eqz(tag, "12-slim") && !str_eqz(tag, "bookworm") && !str_eqz(tag, "bookworm-slim"))
            return err_why(e, REASON_BAD_RECIPE, E_UNSUPPORTED, "line %d: FROM debian: only debian:12 can be built", ps->line);
        ps->r->debian = true;
        tag = S("12");
    }
    ps->r->from = xstrndup(name.p, name.n);
    ps->r->tag = xstrndup(tag.p, tag.n);
    return 0;
}

static int command(struct recipe_cmd *c, const char *what, const char *p, int line, struct err *e)
{
    struct lex_words w = {0};
    if (!*p)
        return err_why(e, REASON_BAD_RECIPE, E_INVALID, "line %d: %s needs a command", line, what);
    if (!strncmp(p, "<<", 2))
        return err_why(e, REASON_BAD_RECIPE, E_UNSUPPORTED, "line %d: here-documents are not supported; join lines with a backslash", line);
    if (!strncmp(p, "--", 2))
        return err_why(e, REASON_BAD_RECIPE, E_UNSUPPORTED, "line %d: %s takes no options", line,
                       what);
    int rc = lex_json(p, &w, line, e);
    if (rc == 0) {
        c->shell = true;
        rc = lex_add(&w, p, strlen(p), line, e);
    } else if (rc > 0 && !*w.v[0]) {
        rc = err_why(e, REASON_BAD_RECIPE, E_INVALID, "line %d: %s needs a program", line, what);
    }
    c->argv = w.v;
    c->argc = w.n;
    return rc < 0 ? -1 : 0;
}

static int on_run(struct parse *ps, const char *p, struct err *e) { return command(&ps->s->cmd, "RUN", p, ps->line, e); }

static int once(struct recipe_cmd *c, const char *what, struct parse *ps, const char *p, struct err *e)
{
    if (c->argc)
        return err_why(e, REASON_BAD_RECIPE, E_INVALID, "line %d: a second %s", ps->line, what);
    return command(c, what, p, ps->line, e);
}
static int on_start(struct parse *ps, const char *p, struct err *e) { return once(&ps->r->start, "START", ps, p, e); }
static int on_ready(struct parse *ps, const char *p, struct err *e) { return once(&ps->r->ready, "READY", ps, p, e); }

static int on_kernels(struct parse *ps, const char *p, struct err *e)
{
    if (ps->r->kernels)
        return err_why(e, REASON_BAD_RECIPE, E_INVALID, "line %d: a second KERNELS", ps->line);
    if (!*p || strlen(p) > RECIPE_KERNELS_MAX || p[strspn(p, "abcdefghijklmnopqrstuvwxyz \t")])
        return err_why(e, REASON_BAD_RECIPE, E_INVALID, "line %d: KERNELS needs names of languages, or none", ps->line);
    ps->r->kernels = xstrdup(p);
    return 0;
}

static int copy_option(struct parse *ps, const char *w, struct err *e)
{
    struct recipe_step *s = ps->s;
    if (!strncmp(w, "--chown=", 8)) {
        if (!owner_ok(w + 8) || s->chown)
            return err_why(e, REASON_BAD_RECIPE, E_INVALID,
                           "line %d: COPY --chown: not user or user:group", ps->line);
        s->chown = xstrdup(w + 8);
        return 0;
    }
    if (!strncmp(w, "--chmod=", 8)) {
        size_t n = strspn(w + 8, "01234567");
        if (w[8 + n] || n < 3 || n > 5 || s->chmod >= 0 || strtol(w + 8, NULL, 8) > 07777)
            return err_why(e, REASON_BAD_RECIPE, E_INVALID,
                           "line %d: COPY --chmod: not an octal mode", ps->line);
        s->chmod = (int)strtol(w + 8, NULL, 8);
        return 0;
    }
    return err_why(e, REASON_BAD_RECIPE, E_UNSUPPORTED, "line %d: COPY %.40s is not supported",
                   ps->line, w);
}

/* Sources are names inside the build context, which the client packs. */
static int source_ok(const char *s, int line, struct err *e)
{
    if (*s == '/')
        return err_why(e, REASON_BAD_RECIPE, E_INVALID, "line %d: COPY: sources are relative to the build context", line);
    if (strpbrk(s, "*?["))
        return err_why(e, REASON_BAD_RECIPE, E_UNSUPPORTED, "line %d: COPY: wildcards are not supported; name the file or its directory", line);
    if (strchr(s, '$') || strchr(s, '\\'))
        return err_why(e, REASON_BAD_RECIPE, E_UNSUPPORTED, "line %d: COPY: variables in sources are not supported", line);
    for (const char *c = s; *c;) {
        size_t n = strcspn(c, "/");
        if (n == 2 && !memcmp(c, "..", 2))
            return err_why(e, REASON_BAD_RECIPE, E_INVALID,
                           "line %d: COPY: a source is outside of the build context", line);
        c += n;
        c += *c == '/';
    }
    return 0;
}

static int copy_words(struct parse *ps, const char *p, struct lex_words *w, struct err *e)
{
    auto_buf b = {0};
    int rc;
    while (!strncmp(p, "--", 2)) {
        if (lex_word(&p, &b, ps->line, e) < 0 || copy_option(ps, b.p, e) < 0)
            return -1;
    }
    if (!strncmp(p, "<<", 2))
        return err_why(e, REASON_BAD_RECIPE, E_UNSUPPORTED,
                       "line %d: here-documents are not supported", ps->line);
    if (*p == '[') {
        if ((rc = lex_json(p, w, ps->line, e)) < 0)
            return -1;
        for (size_t i = 0; rc && i < w->n; i++) { /* no quoting there, but variables */
            b.n = 0;
            for (const char *c = w->v[i]; *c; c++) {
                if (*c == '\\')
                    buf_putc(&b, '\\');
                buf_putc(&b, *c);
            }
            free(w->v[i]);
            w->v[i] = xstrndup(b.n ? b.p : "", b.n);
        }
        if (rc)
            return 0;
    }
    while ((rc = lex_word(&p, &b, ps->line, e)) > 0)
        if (lex_add(w, b.p, b.n, ps->line, e) < 0)
            return -1;
    return rc;
}

static int on_copy(struct parse *ps, const char *p, struct err *e)
{
    struct lex_words w = {0};
    ps->s->chmod = -1;
    int rc = copy_words(ps, p, &w, e);
    if (rc == 0 && w.n < 2)
        rc = err_why(e, REASON_BAD_RECIPE, E_INVALID,
                     "line %d: COPY needs a source and a destination", ps->line);
    for (size_t i = 0; rc == 0 && i < w.n; i++)
        if (!*w.v[i])
            rc = err_why(e, REASON_BAD_RECIPE, E_INVALID, "line %d: COPY: empty name", ps->line);
        else if (i + 1 < w.n)
            rc = source_ok(w.v[i], ps->line, e);
    if (rc == 0 && w.n > 2 && w.v[w.n - 1][strlen(w.v[w.n - 1]) - 1] != '/')
        rc = err_why(e, REASON_BAD_RECIPE, E_INVALID, "line %d: COPY of several sources needs a destination that ends in /", ps->line);
    if (rc == 0)
        words_give(ps, &w);
    lex_free(&w);
    return rc;
}

static int env_pair(struct lex_words *w, const char *name, size_t n, const char *value, int line, struct err *e)
{
    auto_free char *key = xstrndup(name, n);
    if (!env_name_ok(key))
        return err_why(e, REASON_BAD_RECIPE, E_INVALID, "line %d: ENV: not a variable name", line);
    return lex_add(w, key, n, line, e) < 0 || lex_add(w, value, strlen(value), line, e) < 0 ? -1 : 0;
}

static int env_words(struct parse *ps, const char *p, struct lex_words *w, struct err *e)
{
    auto_buf b = {0};
    size_t n = strcspn(p, " \t=");
    int rc;
    if (!*p)
        return err_why(e, REASON_BAD_RECIPE, E_INVALID, "line %d: ENV needs name=value", ps->line);
    if (p[n] != '=') { /* the old form: everything behind the name is the value */
        const char *value = p + n + strspn(p + n, " \t");
        if (!*value)
            return err_why(e, REASON_BAD_RECIPE, E_INVALID, "line %d: ENV needs a value", ps->line);
        return lex_rest(value, &b, ps->line, e) < 0 ? -1 : env_pair(w, p, n, b.p, ps->line, e);
    }
    while ((rc = lex_word(&p, &b, ps->line, e)) > 0) {
        char *eq = strchr(b.p, '=');
        if (!eq)
            return err_why(e, REASON_BAD_RECIPE, E_INVALID, "line %d: ENV: %.40s is not name=value",
                           ps->line, b.p);
        if (env_pair(w, b.p, (size_t)(eq - b.p), eq + 1, ps->line, e) < 0)
            return -1;
    }
    return rc;
}

static int on_env(struct parse *ps, const char *p, struct err *e)
{
    struct lex_words w = {0};
    int rc = env_words(ps, p, &w, e);
    if (rc == 0)
        words_give(ps, &w);
    lex_free(&w);
    return rc;
}

static int one_word(struct parse *ps, const char *what, const char *p, struct err *e)
{
    auto_buf b = {0};
    struct lex_words w = {0};
    int rc = lex_word(&p, &b, ps->line, e);
    if (rc < 0)
        return -1;
    if (!rc || !b.n || *p)
        return err_why(e, REASON_BAD_RECIPE, E_INVALID, "line %d: %s takes one argument", ps->line,
                       what);
    if (lex_add(&w, b.p, b.n, ps->line, e) < 0)
        return -1;
    words_give(ps, &w);
    return 0;
}
static int on_workdir(struct parse *ps, const char *p, struct err *e) { return one_word(ps, "WORKDIR", p, e); }
static int on_user(struct parse *ps, const char *p, struct err *e)
{
    if (one_word(ps, "USER", p, e) < 0)
        return -1;
    const char *u = ps->s->word[0];
    return strchr(u, '$') || owner_ok(u) ? 0 : err_why(e, REASON_BAD_RECIPE, E_INVALID, "line %d: USER: not a user name", ps->line);
}

/* ---- the table -------------------------------------------------------------------------------------------------- */

static const struct instruction {
    const char *name;
    enum recipe_kind kind; /* 0: makes no step */
    int (*parse)(struct parse *ps, const char *rest, struct err *e);
    const char *instead; /* for those that are refused */
} table[] = {
    {"FROM", 0, on_from, NULL},
    {"RUN", RECIPE_RUN, on_run, NULL},
    {"COPY", RECIPE_COPY, on_copy, NULL},
    {"ENV", RECIPE_ENV, on_env, NULL},
    {"WORKDIR", RECIPE_WORKDIR, on_workdir, NULL},
    {"USER", RECIPE_USER, on_user, NULL},
    {"START", 0, on_start, NULL},
    {"READY", 0, on_ready, NULL},
    {"KERNELS", 0, on_kernels, NULL},
    {"ADD", 0, NULL, "use COPY, or RUN with curl"},
    {"ARG", 0, NULL, "use ENV"},
    {"CMD", 0, NULL, "use START"},
    {"ENTRYPOINT", 0, NULL, "use START"},
    {"HEALTHCHECK", 0, NULL, "use READY"},
    {"EXPOSE", 0, NULL, "every port can be reached without it"},
    {"LABEL", 0, NULL, "remove it"},
    {"MAINTAINER", 0, NULL, "remove it"},
    {"ONBUILD", 0, NULL, "remove it"},
    {"SHELL", 0, NULL, "use the JSON form of RUN"},
    {"STOPSIGNAL", 0, NULL, "remove it"},
    {"VOLUME", 0, NULL, "attach volumes when a sandbox is created"},
};

const char *recipe_kind_name(enum recipe_kind k)
{
    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        if (k && table[i].kind == k)
            return table[i].name;
    return "?";
}

static const struct instruction *lookup_word(struct str word)
{
    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        if (str_ieqz(word, table[i].name))
            return &table[i];
    return NULL;
}

static int instruction(struct recipe *r, const char *text, int line, struct err *e)
{
    size_t n = strcspn(text, " \t");
    const struct instruction *in = lookup_word((struct str){text, n});
    struct parse ps = {.r = r, .line = line};
    if (!in)
        return err_why(e, REASON_BAD_RECIPE, E_INVALID, "line %d: unknown instruction %.*s", line, (int)(n > 40 ? 40 : n), text);
    if (!in->parse)
        return err_why(e, REASON_BAD_RECIPE, E_UNSUPPORTED, "line %d: %s is not supported; %s", line, in->name, in->instead);
    if (!r->from && in->parse != on_from)
        return err_why(e, REASON_BAD_RECIPE, E_INVALID, "line %d: a recipe starts with FROM", line);
    if (in->kind) {
        if (r->nsteps == RECIPE_STEPS_MAX)
            return err_set(e, E_TOO_LARGE, "line %d: more than %d steps", line, RECIPE_STEPS_MAX);
        if (!r->step)
            r->step = xcalloc(RECIPE_STEPS_MAX, sizeof *r->step);
        ps.s = &r->step[r->nsteps++];
        *ps.s = (struct recipe_step){.kind = in->kind, .line = line, .chmod = -1};
    }
    return in->parse(&ps, text + n + strspn(text + n, " \t"), e);
}

int recipe_parse(const char *text, size_t n, struct recipe *ret, struct err *e)
{
    struct recipe r = {0};
    struct lex l = {text, text + n, 0};
    auto_buf line = {0};
    int at = 0, rc;
    if (n > RECIPE_BYTES_MAX)
        return err_set(e, E_TOO_LARGE, "recipe is larger than %u bytes", RECIPE_BYTES_MAX);
    if (!str_utf8((struct str){text, n}))
        return err_why(e, REASON_BAD_RECIPE, E_INVALID, "recipe is not UTF-8 text");
    while ((rc = lex_line(&l, &line, &at, e)) > 0)
        if (instruction(&r, line.p, at, e) < 0) {
            rc = -1;
            break;
        }
    if (rc == 0 && !r.from)
        rc = err_why(e, REASON_BAD_RECIPE, E_INVALID, "recipe is empty; it starts with FROM");
    if (rc < 0) {
        recipe_fini(&r);
        return -1;
    }
    *ret = r;
    return 0;
}

static void cmd_fini(struct recipe_cmd *c)
{
    struct lex_words w = {c->argv, c->argc};
    lex_free(&w);
}

void recipe_fini(struct recipe *r)
{
    free(r->from);
    free(r->tag);
    free(r->kernels);
    for (size_t i = 0; i < r->nsteps; i++) {
        struct lex_words w = {r->step[i].word, r->step[i].nwords};
        lex_free(&w);
        cmd_fini(&r->step[i].cmd);
        free(r->step[i].chown);
    }
    free(r->step);
    cmd_fini(&r->start);
    cmd_fini(&r->ready);
    memset(r, 0, sizeof *r);
}
