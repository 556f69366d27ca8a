#include "api/apidoc.h"
#include "api/openapi.h"
#include "api/params.h"
#include "api/schema.h"
#include <ctype.h>
#include <string.h>

#define WIDTH 100
#define SHORT 6 /* an object with more members than that is shown in full only in its own section */

/* ---- text ---- */
static void put_json(struct buf *out,
                     struct str json) /* breaks lines after commas outside of strings */
{
    size_t from = 0, comma = 0;
    bool quoted = false;
    for (size_t i = 0; i < json.n; i++) {
        if (json.p[i] == '"' && (!i || json.p[i - 1] != '\\'))
            quoted = !quoted;
        if (json.p[i] == ',' && !quoted)
            comma = i + 1;
        if (i - from >= WIDTH - 2 && comma > from) {
            buf_put(out, json.p + from, comma - from);
            buf_puts(out, "\n ");
            from = comma;
        }
    }
    buf_put(out, json.p + from, json.n - from);
    buf_puts(out, "\n");
}

static void put_anchor(struct buf *out, const char *name)
{
    buf_printf(out, "[%s](#", name);
    for (; *name; name++)
        buf_printf(out, "%c", tolower((unsigned char)*name));
    buf_puts(out, "-object)"); /* a section may have the same name */
}

/* A sentence: a page that it names becomes a link, and a bar, which would end a cell of a table, is escaped. */
static void put_prose(struct buf *out, const char *text)
{
    while (text && *text) {
        size_t n = strspn(text, "abcdefghijklmnopqrstuvwxyz0123456789-");
        bool page = n && !strncmp(text + n, ".md", 3);
        if (page)
            buf_printf(out, "[%.*s.md](%.*s.md)", (int)n, text, (int)n, text);
        else if (n)
            buf_put(out, text, n);
        else
            buf_printf(out, "%s%c", *text == '|' ? "\\" : "", *text);
        text += page ? n + 3 : n ? n : 1;
    }
}

/* ---- examples ---- */
static void example_of(struct jw *w, const struct shape *sh, bool whole);
static void put_value(struct jw *w, const struct field *f, bool whole)
{
    struct str word = {0};
    if (f->ex) {
        jw_raw(w, str_of(f->ex));
        return;
    }
    switch (f->type) {
    case F_INT:
    case F_NUM:
    case F_CORES: jw_i64(w, f->min); break;
    case F_BOOL: jw_bool(w, false); break;
    case F_WORD:
    case F_CHOICE:
        (void)field_word(f->words, 0, &word);
        jw_str(w, word);
        break;
    case F_TIME: jw_strz(w, "2026-01-31T12:00:00.000Z"); break;
    case F_OBJ: example_of(w, f->of, whole); break;
    case F_LIST:
        jw_arr(w);
        example_of(w, f->of, whole);
        jw_end(w);
        break;
    case F_STRS:
    case F_RULES:
    case F_PORTS: jw_raw(w, S("[]")); break;
    case F_MAP:
    case F_ENV:
    case F_META:
    case F_OBJECT: jw_raw(w, S("{}")); break;
    default: jw_strz(w, "…"); break;
    }
}

static void example_of(struct jw *w, const struct shape *sh, bool whole)
{
    size_t n = whole || sh->n <= SHORT ? sh->n : 3;
    jw_obj(w);
    for (size_t i = 0; i < n; i++) {
        if (sh->rows[i].ex && !*sh->rows[i].ex)
            continue; /* does not go with the others */
        jw_key(w, sh->rows[i].name);
        put_value(w, &sh->rows[i], false);
    }
    if (n < sh->n)
        jw_kv_raw(w, "…", S("0"));
    jw_end(w);
}

static void put_example(struct buf *out, const struct shape *sh, bool whole)
{
    auto_buf text = {0};
    struct jw w;
    jw_init(&w, &text);
    example_of(&w, sh, whole);
    buf_reserve(&text, 1);
    text.p[text.n] = 0;
    static const char more[] = "\"…\":0"; /* the writer knows no dots */
    for (char *p; (p = strstr(text.p, more));) {
        size_t at = (size_t)(p - text.p);
        memmove(p + 3, p + sizeof more - 1, text.n - at - (sizeof more - 1) + 1);
        memcpy(p, "…", 3);
        text.n -= sizeof more - 1 - 3;
    }
    buf_puts(out, "```json\n");
    put_json(out, (struct str){text.p, text.n});
    buf_puts(out, "```\n");
}

/* ---- tables ---- */
static void put_type(struct buf *out, const struct field *f)
{
    struct str word;
    bool named = f->of && f->of->name;
    switch (f->type) {
    case F_WORD:
    case F_CHOICE:
        for (size_t i = 0; field_word(f->words, i, &word); i++)
            buf_printf(out, "%s`%.*s`", i ? ", " : "", (int)word.n, word.p);
        break;
    case F_OBJ:
    case F_JSON:
        if (named)
            put_anchor(out, f->of->name);
        else
            buf_puts(out, schema_kind(f));
        break;
    case F_LIST:
    case F_RULES:
        buf_puts(out, f->type == F_LIST ? "array of " : "array of strings and ");
        put_anchor(out, f->of->name);
        if (f->max)
            buf_printf(out, ", at most %lld", (long long)f->max);
        break;
    case F_INT:
        buf_puts(out, "integer");
        if (f->max == INT64_MAX || f->max == INT64_MAX / 4)
            buf_printf(out, ", at least %lld", (long long)f->min);
        else if (f->max)
            buf_printf(out, ", %lld to %lld", (long long)f->min, (long long)f->max);
        break;
    case F_CORES:
        buf_printf(out, "number, %g to %g", (double)f->min / 1000, (double)f->max / 1000);
        break;
    case F_ENV: buf_printf(out, "string map, at most %d", PARAM_ENV_MAX); break;
    case F_META:
        buf_printf(out, "string map, at most %d, values at most %d bytes", PARAM_META_MAX,
                   PARAM_META_VALUE_MAX);
        break;
    case F_NAME: buf_puts(out, "name"); break;
    default:
        buf_puts(out, schema_kind(f));
        if (f->max && f->type != F_ARGV)
            buf_printf(out, ", at most %lld bytes", (long long)f->max);
    }
    if (f->flags & F_NULL)
        buf_puts(out, " or null");
}

static void put_rows(struct buf *out, const struct shape *sh, const char *what, bool is_sent)
{
    buf_printf(out, "\n| %s | type | %smeaning |\n|---|---|%s---|\n", what,
               is_sent ? "default | " : "", is_sent ? "---|" : "");
    for (size_t i = 0; i < sh->n; i++) {
        const struct field *f = &sh->rows[i];
        buf_printf(out, "| `%s` | ", f->name);
        put_type(out, f);
        if (is_sent && f->flags & F_REQUIRED)
            buf_puts(out, " | required");
        else if (is_sent && f->def)
            buf_printf(out, " | `%s`", f->def);
        else if (is_sent)
            buf_puts(out, " | –");
        buf_puts(out, " | ");
        put_prose(out, f->help);
        if (!is_sent && !(f->flags & F_REQUIRED))
            buf_puts(out, f->help ? " Not always there." : "Not always there.");
        buf_puts(out, " |\n");
    }
}

/* ---- a route ---- */
static void put_request(struct buf *out, const struct api_route *r)
{
    buf_printf(out, "\n```http\n%s %s%s%s\n", r->method, r->pattern, r->ex_query ? "?" : "",
               r->ex_query ? r->ex_query : "");
    if (r->body)
        buf_printf(out, "Content-Type: %s\n", r->body->media ? r->body->media : "application/json");
    if (r->ex_body) {
        buf_puts(out, "\n");
        put_json(out, str_of(r->ex_body));
    } else if (r->body && !r->body->n) {
        buf_puts(out, "\nhello\n");
    }
    buf_puts(out, "```\n");
}

static void put_answer(struct buf *out, const struct api_answer *a)
{
    buf_printf(out, "\n→ %d", a->status);
    switch (a->kind) {
    case ANSWER_JSON:
    case ANSWER_LINES:
    case ANSWER_EVENTS:
        buf_puts(out, a->kind == ANSWER_LINES    ? " `application/x-ndjson`, each line: "
                      : a->kind == ANSWER_EVENTS ? " `text/event-stream`, the data of each event: "
                                                 : " ");
        put_anchor(out, a->of->name);
        buf_puts(out, "\n\n");
        put_example(out, a->of, a->kind != ANSWER_JSON);
        break;
    case ANSWER_BYTES: buf_puts(out, " with the bytes, `application/octet-stream`\n"); break;
    case ANSWER_TEXT: buf_puts(out, " `text/plain`\n"); break;
    case ANSWER_SOCKET: buf_puts(out, ", then WebSocket\n"); break;
    case ANSWER_NONE: buf_puts(out, " without a body\n"); break;
    }
}

static void put_route(struct buf *out, const struct api_route *r)
{
    buf_printf(out, "\n### %s\n\n`%s %s` (`%s`)", r->summary, r->method, r->pattern, r->id);
    if (r->flags & ROUTE_SOCKET)
        buf_puts(out, ", only over the unix socket");
    if (r->flags & ROUTE_OPEN)
        buf_puts(out, ", needs no key");
    buf_puts(out, ".");
    if (r->more)
        buf_puts(out, " ");
    put_prose(out, r->more);
    buf_puts(out, "\n");
    put_request(out, r);
    for (const struct api_answer *a = r->answer; a->status; a++)
        put_answer(out, a);
    if (r->query)
        put_rows(out, r->query, "parameter", true);
    if (r->body && r->body->n)
        put_rows(out, r->body, r->body->media ? "part" : "member", true);
}

static bool is_body(const struct api_table *t, const struct shape *sh)
{
    for (size_t i = 0; i < t->n; i++) {
        bool answered = false;
        for (const struct api_answer *a = t->routes[i].answer; a->status; a++)
            answered |= a->of == sh;
        if (answered)
            return false;
    }
    for (size_t i = 0; i < t->n; i++)
        if (t->routes[i].body == sh)
            return true;
    return false;
}

void apidoc_write(struct buf *out, const struct api_table *t)
{
    const struct shape *all[SHAPES_MAX];
    for (const char *const *tag = t->tags; *tag; tag++) {
        buf_printf(out, "\n## %s\n", *tag);
        for (size_t i = 0; i < t->n; i++)
            if (!strcmp(t->routes[i].tag, *tag))
                put_route(out, &t->routes[i]);
    }
    buf_puts(out, "\n## Objects\n");
    size_t n = api_shapes(t, all);
    for (size_t i = 0; i < n; i++) {
        if (is_body(t, all[i])) /* its rows are with the route */
            continue;
        buf_printf(out, "\n### %s object\n\n", all[i]->name);
        put_prose(out, all[i]->help);
        buf_puts(out, all[i]->help ? "\n\n" : "");
        put_example(out, all[i], true);
        if (all[i]->n)
            put_rows(out, all[i], "member", all[i]->size != 0);
    }
}
