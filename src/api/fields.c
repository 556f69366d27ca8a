#include "api/fields.h"
#include "api/params.h"
#include "base/cleanup.h"
#include "core/sandbox/exec.h"
#include "core/host/config.h"
#include "http/uri.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#define WHERE_MAX 160 /* of a path in a message */

const struct field *shape_row(const struct shape *sh, struct str name)
{
    for (size_t i = 0; i < sh->n; i++)
        if (str_eqz(name, sh->rows[i].name))
            return &sh->rows[i];
    return NULL;
}

int64_t field_max(const struct field *f, const struct config *cfg)
{
    uint32_t set = 0;
    if (cfg && f->max_of)
        memcpy(&set, (const char *)cfg + f->max_of, sizeof set);
    return set ? set : f->max;
}

bool field_word(const char *words, size_t i, struct str *ret)
{
    for (; i && words; i--)
        words = (words = strchr(words, '|')) ? words + 1 : NULL;
    if (words)
        *ret = (struct str){words, strcspn(words, "|")};
    return words != NULL;
}

/* ---- one value, wherever it came from ---- */
static void *place(const struct field *f, void *into) { return (char *)into + f->at; }

static void store_int(const struct field *f, void *into, int64_t v)
{
    switch (f->size) {
    case 1: *(uint8_t *)place(f, into) = (uint8_t)v; break;
    case 2: *(uint16_t *)place(f, into) = (uint16_t)v; break;
    case 4: *(uint32_t *)place(f, into) = (uint32_t)v; break;
    case 8: *(uint64_t *)place(f, into) = (uint64_t)v; break;
    default: abort(); /* a row that does not fit its struct */
    }
}

static int take_int(const struct field *f, void *into, const char *where, int64_t v,
                    const struct config *cfg, struct err *e)
{
    int64_t max = field_max(f, cfg);
    if (max == INT64_MAX && v < f->min)
        return err_set(e, E_INVALID, "%s: must be at least %lld", where, (long long)f->min);
    if (v < f->min || v > max)
        return err_set(e, E_INVALID, "%s: must be between %lld and %lld", where, (long long)f->min,
                       (long long)max);
    store_int(f, into, v);
    return 0;
}

static int take_cores(const struct field *f, void *into, const char *where, double v, struct err *e)
{
    if (!(v * 1000 >= (double)f->min && v * 1000 <= (double)f->max)) /* not a number is out, too */
        return err_set(e, E_INVALID, "%s: must be between %g and %g", where, (double)f->min / 1000,
                       (double)f->max / 1000);
    store_int(f, into, (int64_t)(v * 1000 + 0.5));
    return 0;
}

/* "kill or pause", "auto, vm or container" */
static int not_a_word(const struct field *f, const char *where, struct err *e)
{
    auto_buf b = {0};
    struct str w, after;
    for (size_t i = 0; field_word(f->words, i, &w); i++) {
        bool more = field_word(f->words, i + 1, &after),
             last = more && !field_word(f->words, i + 2, &after);
        buf_printf(&b, "%.*s%s", (int)w.n, w.p, last ? " or " : more ? ", " : "");
    }
    return err_set(e, E_INVALID, "%s: must be %.*s", where, (int)b.n, b.p);
}

static int take_word(const struct field *f, void *into, const char *where, struct str v,
                     struct err *e)
{
    struct str w;
    for (size_t i = 0; field_word(f->words, i, &w); i++)
        if (str_eq(w, v)) {
            if (f->type == F_CHOICE)
                store_int(f, into, (int64_t)i);
            else
                *(const char **)place(f, into) = v.p;
            return 0;
        }
    return not_a_word(f, where, e);
}

static bool plain(struct str t) /* no control bytes: it ends up in listings */
{
    for (size_t i = 0; i < t.n; i++)
        if ((unsigned char)t.p[i] < 0x20 || t.p[i] == 0x7f)
            return false;
    return true;
}

/* v is NUL-terminated and lives as long as the struct. */
static int take_text(const struct field *f, void *into, const char *where, struct str v,
                     struct err *e)
{
    if (f->type == F_WORD || f->type == F_CHOICE)
        return take_word(f, into, where, v, e);
    if (f->type == F_NAME && !name_ok(v))
        return err_set(e, E_INVALID, "%s: must match ^[a-z0-9][a-z0-9-]{0,62}$", where);
    if (f->type == F_MODE)
        return mode_parse(v, place(f, into))
                   ? err_set(e, E_INVALID, "%s: must be octal text, \"0\" to \"7777\"", where)
                   : 0;
    if (!v.n && (f->type == F_STR || f->type == F_PATH))
        return err_set(e, E_INVALID, "%s: must not be empty", where);
    if (f->max && v.n > (size_t)f->max)
        return err_set(e, E_INVALID, "%s: at most %lld bytes", where, (long long)f->max);
    if (f->type == F_STR && !plain(v))
        return err_set(e, E_INVALID, "%s: control characters are not allowed", where);
    if (f->type == F_TEXT || f->type == F_BASE64)
        *(struct str *)place(f, into) = v;
    else
        *(const char **)place(f, into) = v.p;
    return 0;
}

static void take_default(const struct field *f, void *into)
{
    struct err none;
    if (!f->def)
        return;
    if (f->type == F_BOOL)
        *(bool *)place(f, into) = !strcmp(f->def, "true");
    else if (f->type == F_INT)
        store_int(f, into, strtoll(f->def, NULL, 10));
    else if (f->type == F_MODE)
        store_int(f, into, (int64_t)strtoul(f->def + 1, NULL, 8)); /* "0755" with its quotes */
    else if (f->type == F_CHOICE) {
        if (take_word(f, into, f->name, (struct str){f->def + 1, strlen(f->def) - 2}, &none))
            abort(); /* a default that the row itself refuses */
    }
    /* maps and lists are empty, and what has no other form is said by NULL */
}

/* ---- a body ---- */
static int read_argv(const struct field *f, void *into, struct json *j, const char *where,
                     struct err *e)
{
    struct str v;
    size_t n = json_len(j);
    bool shell = json_kind(j) == JSON_STR;
    if (!shell && json_kind(j) != JSON_ARR)
        return json_fail(j, e, "must be an array of strings, or a string");
    if (!shell && !n)
        return json_fail(j, e, "must not be empty");
    if (n > PARAM_ARGS_MAX)
        return err_set(e, E_TOO_LARGE, "%s: at most %d arguments", where, PARAM_ARGS_MAX);
    char **argv = xcalloc(shell ? 4 : n + 1, sizeof *argv);
    *(char ***)place(f, into) = argv;
    if (shell) {
        argv[0] = (char *)(uintptr_t) "/bin/bash", argv[1] = (char *)(uintptr_t) "-c";
        argv += 2, n = 1;
    }
    for (size_t i = 0; i < n; i++) {
        struct json *one = shell ? j : json_at(j, i);
        if (json_to_str(one, &v, e))
            return -1;
        if (v.n >= PARAM_ARG_MAX)
            return err_set(e, E_TOO_LARGE,
                           "%s: one argument may have %d bytes; send more through stdin or a file",
                           where, PARAM_ARG_MAX - 1);
        if (!i && !shell && !v.n)
            return json_fail(one, e, "must not be empty");
        argv[i] = (char *)(uintptr_t)v.p;
    }
    return 0;
}

static int read_signal(const struct field *f, void *into, struct json *j, struct err *e)
{
    struct str name;
    int64_t n = 0;
    if (json_kind(j) == JSON_INT) {
        if (json_to_i64(j, 1, 64, &n, e))
            return -1;
    } else if (json_to_str(j, &name, e)) {
        return -1;
    } else if ((n = signal_number(name.p)) < 0) {
        return json_fail(j, e, "not a signal; \"SIGTERM\", \"TERM\" or 15");
    }
    store_int(f, into, n);
    return 0;
}

static int read_list(const struct field *f, void *into, struct json *j, const char *where,
                     const struct config *cfg, struct err *e)
{
    size_t n = json_len(j);
    if (json_kind(j) != JSON_ARR)
        return json_fail(j, e, "not an array");
    if (n > (size_t)f->max)
        return err_set(e, E_INVALID, "%s: at most %lld", where, (long long)f->max);
    if ((size_t)f->max * f->of->size > f->size)
        abort(); /* a row that does not fit its struct */
    for (size_t i = 0; i < n; i++)
        if (fields_read(json_at(j, i), f->of, (char *)place(f, into) + i * f->of->size, cfg, e))
            return -1;
    *(size_t *)((char *)into + f->count) = n;
    return 0;
}

static int read_value(const struct field *f, void *into, struct json *obj, struct json *j,
                      const struct config *cfg, struct err *e)
{
    char where[WHERE_MAX];
    int64_t i;
    double d;
    struct str v;
    json_path(j, where, sizeof where);
    switch (f->type) {
    case F_INT:
        return json_to_i64(j, INT64_MIN, INT64_MAX, &i, e) || take_int(f, into, where, i, cfg, e)
                   ? -1
                   : 0;
    case F_CORES:
        return json_to_f64(j, -HUGE_VAL, HUGE_VAL, &d, e) || take_cores(f, into, where, d, e) ? -1
                                                                                              : 0;
    case F_BOOL: return json_to_bool(j, place(f, into), e);
    case F_SIGNAL: return read_signal(f, into, j, e);
    case F_ENV: return body_env(obj, f->name, place(f, into), e);
    case F_META: return body_meta(obj, f->name, place(f, into), e);
    case F_ARGV: return read_argv(f, into, j, where, e);
    case F_OBJ: return fields_read(j, f->of, place(f, into), cfg, e);
    case F_LIST: return read_list(f, into, j, where, cfg, e);
    case F_JSON: *(struct json **)place(f, into) = j; return 0;
    case F_STR:
    case F_PATH:
    case F_TEXT:
    case F_BASE64:
    case F_NAME:
    case F_WORD:
    case F_CHOICE:
    case F_MODE: return json_to_str(j, &v, e) || take_text(f, into, where, v, e) ? -1 : 0;
    default: abort(); /* a row that only describes */
    }
}

static int missing(struct json *obj, const struct field *f, struct err *e)
{
    char where[WHERE_MAX];
    bool root = !strcmp(json_path(obj, where, sizeof where), "body");
    return err_set(e, E_INVALID, "%s%s%s: missing%s", root ? "" : where, root ? "" : ".", f->name,
                   f->type == F_ARGV ? "; an array of strings, or a string for /bin/bash -c" : "");
}

/* How many letters to change, add, drop or swap; anything over 2 is far. */
static unsigned distance(struct str a, const char *b)
{
    unsigned row[3][34] = {{0}}, n = (unsigned)strlen(b);
    if (a.n > 32 || n > 32)
        return 99;
    for (unsigned j = 0; j <= n; j++)
        row[0][j] = j;
    for (unsigned i = 1; i <= a.n; i++) {
        unsigned *now = row[i % 3], *last = row[(i + 2) % 3], *before = row[(i + 1) % 3];
        now[0] = i;
        for (unsigned j = 1; j <= n; j++) {
            bool same = a.p[i - 1] == b[j - 1];
            unsigned v = last[j - 1] + !same;
            v = last[j] + 1 < v ? last[j] + 1 : v;
            v = now[j - 1] + 1 < v ? now[j - 1] + 1 : v;
            if (i > 1 && j > 1 && a.p[i - 1] == b[j - 2] && a.p[i - 2] == b[j - 1] &&
                before[j - 2] + 1 < v)
                v = before[j - 2] + 1;
            now[j] = v;
        }
    }
    return row[a.n % 3][n];
}

static int unknown(struct json *j, struct str name, const struct shape *sh, struct err *e)
{
    const char *near = NULL;
    unsigned best = name.n > 3 ? 3 : 2;
    char where[WHERE_MAX];
    for (size_t i = 0; i < sh->n; i++) {
        unsigned d = distance(name, sh->rows[i].name);
        size_t least = strlen(sh->rows[i].name) < name.n ? strlen(sh->rows[i].name) : name.n;
        bool part = least > 3 && (!strncmp(sh->rows[i].name, name.p, least));
        if (d < best)
            best = d, near = sh->rows[i].name;
        else if (part && !near)
            near = sh->rows[i].name;
    }
    json_path(j, where, sizeof where);
    if (near)
        return err_set(e, E_INVALID, "%s: unknown member; did you mean %s?", where, near);
    return err_set(e, E_INVALID, "%s: unknown member", where);
}

static int only_known(struct json *obj, const struct shape *sh, struct err *e)
{
    if (json_kind(obj) != JSON_OBJ)
        return json_fail(obj, e, "not an object");
    for (void *it = json_first(obj); it; it = json_next(obj, it))
        if (!shape_row(sh, json_iter_key(it)))
            return unknown(json_iter_value(obj, it), json_iter_key(it), sh, e);
    return 0;
}

int fields_known(struct json *obj, const struct shape *sh, struct err *e)
{
    if (only_known(obj, sh, e))
        return -1;
    for (size_t i = 0; i < sh->n; i++) {
        struct json *j = sh->rows[i].of ? json_get(obj, sh->rows[i].name) : NULL;
        if (j && sh->rows[i].type == F_OBJ && fields_known(j, sh->rows[i].of, e))
            return -1;
        for (size_t k = 0;
             j && (sh->rows[i].type == F_LIST || sh->rows[i].type == F_RULES) && k < json_len(j);
             k++)
            if (json_kind(json_at(j, k)) == JSON_OBJ &&
                fields_known(json_at(j, k), sh->rows[i].of, e))
                return -1;
    }
    return 0;
}

int fields_read(struct json *obj, const struct shape *sh, void *into, const struct config *cfg,
                struct err *e)
{
    if (only_known(obj, sh, e))
        return -1;
    for (size_t i = 0; i < sh->n; i++) {
        const struct field *f = &sh->rows[i];
        struct json *j = json_get(obj, f->name);
        if (!j && f->flags & F_REQUIRED)
            return missing(obj, f, e);
        if (!j)
            take_default(f, into);
        else if (read_value(f, into, obj, j, cfg, e))
            return -1;
    }
    return 0;
}

struct json *body_read(const char *p, size_t n, const struct shape *sh, void *into,
                       const struct config *cfg, struct err *e)
{
    struct json *j = n ? json_parse_obj(p, n, e) : json_parse_obj("{}", 2, e);
    if (j && fields_read(j, sh, into, cfg, e)) {
        json_free(j);
        return NULL;
    }
    return j;
}

/* ---- a query ---- */
static int take_flag(const struct field *f, void *into, const char *v, struct err *e)
{
    bool yes = !strcmp(v, "1") || !strcmp(v, "true");
    if (!yes && strcmp(v, "0") != 0 && strcmp(v, "false") != 0)
        return err_set(e, E_INVALID, "%s: must be 1 or 0", f->name);
    *(bool *)place(f, into) = yes;
    return 0;
}

static int take_again(const struct field *f, void *into, struct str v,
                      struct err *e) /* a parameter that repeats */
{
    char ***at = place(f, into);
    size_t n = 0;
    for (; *at && (*at)[n]; n++)
        ;
    if (n == (size_t)f->max)
        return err_set(e, E_TOO_LARGE, "%s: at most %lld times", f->name, (long long)f->max);
    if (!n && !v.n)
        return err_set(e, E_INVALID, "%s: must not be empty", f->name);
    *at = xrealloc(*at, (n + 2) * sizeof **at);
    (*at)[n] = xstrdup(v.p), (*at)[n + 1] = NULL;
    return 0;
}

static int take_param(const struct field *f, void *into, struct str v, const struct config *cfg,
                      struct err *e)
{
    int64_t i;
    switch (f->type) {
    case F_ARGV: return take_again(f, into, v, e);
    case F_BOOL: return take_flag(f, into, v.p, e);
    case F_INT:
        if (!str_i64(v, &i))
            return err_set(e, E_INVALID, "%s: not a number", f->name);
        return take_int(f, into, f->name, i, cfg, e);
    case F_MODE:
    case F_CHOICE: return take_text(f, into, f->name, v, e);
    case F_STR:
    case F_PATH:
    case F_NAME:
    case F_WORD:
        if (take_text(f, into, f->name, v, e)) {
            *(const char **)place(f, into) = NULL;
            return -1;
        }
        *(char **)place(f, into) = xstrdup(v.p);
        return 0;
    default: abort(); /* no such parameter */
    }
}

static int one_param(const struct field *f, void *into, struct http_stream *s,
                     const struct config *cfg, bool *given, struct err *e)
{
    struct str rest = http_query(s), k, v;
    while (query_next(&rest, &k, &v)) {
        auto_buf key = {0}, text = {0};
        if (!uri_decode(k, true, &key) || !uri_decode(v, true, &text))
            return err_set(e, E_INVALID, "the query has a broken %%-escape, or %%00");
        if (!str_eqz((struct str){key.p ? key.p : "", key.n}, f->name))
            continue;
        if (*given && f->type != F_ARGV)
            return err_set(e, E_INVALID, "%s: given twice", f->name);
        buf_reserve(&text, 1);
        text.p[text.n] = 0;
        if (!text.n && f->type != F_ARGV && f->type != F_BOOL)
            continue; /* name= is the same as none */
        *given = true;
        if (take_param(f, into, (struct str){text.p, text.n}, cfg, e))
            return -1;
    }
    return 0;
}

int query_read(struct http_stream *s, const struct shape *sh, void *into, const struct config *cfg,
               struct err *e)
{
    for (size_t i = 0; i < sh->n; i++) {
        const struct field *f = &sh->rows[i];
        bool given = false;
        if (f->type == F_ENV || f->type == F_META) {
            if (param_map(s, f->name, f->type == F_ENV, place(f, into), e))
                return -1;
            continue;
        }
        take_default(f, into);
        if (one_param(f, into, s, cfg, &given, e))
            return -1;
        if (!given && f->flags & F_REQUIRED)
            return err_set(e, E_INVALID, "%s: missing; the query needs %s=%s", f->name, f->name,
                           f->type == F_PATH ? "PATH" : "VALUE");
    }
    return 0;
}

/* ---- the end of it ---- */
static void free_rows(const struct shape *sh, void *into, bool query)
{
    for (size_t i = 0; i < sh->n; i++) {
        const struct field *f = &sh->rows[i];
        if (f->type == F_ENV || f->type == F_META) {
            kv_free(place(f, into));
        } else if (f->type == F_ARGV) {
            char ***argv = place(f, into);
            for (char **p = *argv; query && p && *p; p++)
                free(*p);
            free(*argv);
            *argv = NULL;
        } else if (query && (f->type == F_STR || f->type == F_PATH || f->type == F_NAME ||
                             f->type == F_WORD)) {
            free(*(char **)place(f, into));
            *(char **)place(f, into) = NULL;
        }
    }
}
void fields_free(const struct shape *sh, void *into) { free_rows(sh, into, false); }
void query_free(const struct shape *sh, void *into) { free_rows(sh, into, true); }
