#include "cli/complete.h"
#include "base/cleanup.h"
#include "cli/args.h"
#include "cli/client.h"
#include "cli/out.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct offer {
    struct cli *x;
    const char *cur,
        *before; /* what is completed; what stands before it in the same word ("--name=") */
    struct buf *out;
};

static void put(struct offer *o, const char *word, const char *help)
{
    if (!*word || strncmp(word, o->cur, strlen(o->cur)))
        return;
    buf_puts(o->out, o->before);
    esc_put(o->out, str_of(word));
    if (help && *help) {
        buf_putc(o->out, '\t');
        esc_put(o->out, str_of(help));
    }
    buf_putc(o->out, '\n');
}

/* Where names come from: the list at `path` is `key` of the answer; the word is the first member there is. */
static const struct source {
    const char *token, *path, *key, *word, *also, *help, *suffix;
} sources[] = {
    {"@id", "/v1/sandboxes?limit=500", "sandboxes", "name", "id", "template", ""},
    {"@place", "/v1/sandboxes?limit=500", "sandboxes", "name", "id", "template", ":"},
    {"@template", "/v1/templates", "templates", "name", NULL, NULL, ""},
    {"@snapshot", "/v1/snapshots", "snapshots", "name", "id", "sandbox", ""},
    {"@volume", "/v1/volumes", "volumes", "name", NULL, NULL, ""},
    {"@secret", "/v1/secrets", "secrets", "name", NULL, NULL, ""},
    {"@key", "/v1/keys", "keys", "id", NULL, "name", ""},
};

static void put_names(struct offer *o, const struct source *s)
{
    auto_json j = NULL;
    struct err kept = o->x->err;
    o->x->no_start = true;
    if (api_call(o->x, "GET", s->path, NULL, &j))
        o->x->err = kept; /* nobody wants to read that at a prompt */
    struct json *list = json_get(j, s->key);
    for (size_t i = 0; i < json_len(list); i++) {
        struct json *e = json_at(list, i);
        const char *const words[] = {jget_str(e, s->word, ""),
                                     s->also ? jget_str(e, s->also, "") : ""};
        for (size_t k = 0; k < 2; k++) {
            auto_free char *w = *words[k] ? xasprintf("%s%s", words[k], s->suffix) : NULL;
            if (w)
                put(o, w, s->help ? jget_str(e, s->help, "") : NULL);
        }
    }
    if (*s->suffix)
        buf_puts(o->out, ":nospace\n");
}

static void put_token(struct offer *o, const char *token)
{
    if (!strcmp(token, "@file")) {
        buf_puts(o->out, ":files\n");
        return;
    }
    if (!strcmp(token, "@verb")) {
        for (const struct cmd *const *c = cmds; *c; c++)
            put(o, (*c)->name, (*c)->help);
        return;
    }
    for (size_t i = 0; i < sizeof sources / sizeof *sources; i++)
        if (!strcmp(token, sources[i].token)) {
            put_names(o, &sources[i]);
            return;
        }
    put(o, token, NULL);
    if (*token && token[strlen(token) - 1] == '=')
        buf_puts(o->out, ":nospace\n");
}

/* The words for position `at`: positions are separated by ";", the last one is also for all that follow. */
static void put_words(struct offer *o, const char *spec, int at)
{
    for (; spec && at > 0 && strchr(spec, ';'); at--)
        spec = strchr(spec, ';') + 1;
    auto_free char *copy = spec ? xstrndup(spec, strcspn(spec, ";")) : NULL;
    char *rest = copy, *token;
    while ((token = strsep(&rest, " ")))
        put_token(o, token);
}

static void put_options(struct offer *o, const struct cmd *c)
{
    for (const struct opt *p = c->opts; p && p->name; p++) {
        auto_free char *w = xasprintf("--%s", p->name);
        put(o, w, p->help);
    }
    put(o, "--help", "show this");
}

/* The option whose value comes in the next word, NULL if the word is complete in itself. */
static const struct opt *wants_value(const struct cmd *c, const char *word)
{
    if (word[0] != '-' || !word[1] || strchr(word, '='))
        return NULL;
    for (const struct opt *p = c->opts; p && p->name; p++)
        if (p->kind != 'f' && (word[1] == '-' ? !strcmp(word + 2, p->name)
                                              : p->letter && word[1] == p->letter && !word[2]))
            return p;
    return NULL;
}

static void in_verb(struct offer *o, const struct cmd *c, int n, char **words)
{
    const struct opt *value = NULL;
    int positionals = 0;
    bool ended = false;
    for (int i = 0; i < n; i++) { /* those before the cursor */
        if (value)
            value = NULL;
        else if (!ended && !strcmp(words[i], "--"))
            ended = true;
        else if (!ended && words[i][0] == '-' && words[i][1])
            value = wants_value(c, words[i]);
        else if (++positionals == c->stop_at)
            ended = true;
    }
    const char *eq = !ended && !strncmp(o->cur, "--", 2) ? strchr(o->cur, '=') : NULL;
    if (value) {
        put_words(o, value->words, 0);
    } else if (eq) {
        auto_free char *name = xstrndup(o->cur, (size_t)(eq - o->cur)),
                       *before = xstrndup(o->cur, (size_t)(eq + 1 - o->cur));
        const struct opt *p = wants_value(c, name);
        o->cur = eq + 1, o->before = before;
        put_words(o, p ? p->words : NULL, 0);
        o->before = "";
    } else if (!ended && o->cur[0] == '-') {
        put_options(o, c);
    } else if (ended && (!c->stop_at || positionals >= c->stop_at || !positionals)) {
        buf_puts(o->out, ":files\n"); /* a command of its own */
    } else if (c->max < 0 || positionals < c->max) {
        put_words(o, c->words, positionals);
    }
}

void complete(struct cli *x, int n, char **words, struct buf *out)
{
    struct offer o = {.x = x, .cur = n ? words[n - 1] : "", .before = "", .out = out};
    const struct cmd *const *list = cmds, *c = NULL;
    int i = 0;
    while (i < n - 1 && words[i][0] == '-') /* before the verb; these two have a value */
        i += !strcmp(words[i], "--url") || !strcmp(words[i], "--cacert") ? 2 : 1;
    for (; i < n - 1 && list; i++) {
        if (!(c = cmd_find(list, words[i])))
            return;
        list = c->sub;
    }
    if (i > n - 1)
        return; /* the value of --url or --cacert */
    if (c && !list) {
        in_verb(&o, c, n - 1 - i, words + i);
        return;
    }
    for (const struct cmd *const *s = list; *s; s++)
        put(&o, (*s)->name, (*s)->help);
    if (o.cur[0] == '-') {
        put(&o, "--help", "show this");
        if (!c)
            put(&o, "--url", "another daemon"), put(&o, "--cacert", "certificates to trust"),
                put(&o, "--version", "print the version");
    }
}
