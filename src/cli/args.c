/* Long and short options in the usual shapes: --name value, --name=value, -n
 * value, -nvalue, clusters of flags (-fq). "--" ends options. Long options may
 * not be abbreviated: a script must not break when an option is added. */
#include "cli/args.h"
#include "cli/out.h"
#include "base/str.h"
#include <stdio.h>
#include <string.h>

static const char *opt_at(const void *arg, int i)
{
    const struct opt *o = arg;
    if (!o)
        return i == 0 ? "help" : NULL;
    for (int k = 0; k < i; k++)
        if (!o[k].name)
            return NULL; /* past the extra one */
    return o[i].name ? o[i].name : "help";
}
static const char *cmd_at(const void *arg, int i)
{
    const struct cmd *const *l = arg;
    return l[i] ? l[i]->name : NULL;
}
/* A guess is typed without thinking: never one that destroys something. */
const char *cmd_suggest(const struct cmd *const *list, const char *name)
{
    static const char *const harm[] = {"kill", "down", "rm", "rollback", "revoke", "distrust"};
    const char *near = suggest(name, cmd_at, list);
    for (size_t i = 0; near && i < sizeof harm / sizeof *harm; i++)
        if (!strcmp(near, harm[i]))
            return NULL;
    return near;
}

/* What people type who know other tools. */
const char *cmd_foreign(const char *name)
{
    static const struct { const char *name, *answer; } words[] = {
        {"rm", "`hutch kill ID` destroys a sandbox; templates, volumes and snapshots have `rm` of their own"},
        {"rmi", "`hutch template rm NAME` removes a template"},
        {"delete", "`hutch kill ID` destroys a sandbox"},
        {"destroy", "`hutch kill ID` destroys a sandbox"},
        {"stop", "`hutch pause ID` stops a sandbox and keeps it, `hutch kill ID` destroys it, `hutch down` stops the daemon"},
        {"start", "`hutch create` starts a sandbox, `hutch resume ID` continues a paused one, `hutch up` starts the daemon"},
        {"restart", "`hutch pause ID` and then `hutch resume --cold ID` boots a sandbox again"},
        {"unpause", "`hutch resume ID` continues a paused sandbox"},
        {"inspect", "`hutch info ID` describes a sandbox"},
        {"stats", "`hutch top` shows what sandboxes use, `hutch metrics ID` one of them"},
        {"images", "`hutch template ls` lists templates"},
        {"build", "`hutch template build NAME -f RECIPE` builds a template"},
        {"pull", "images are not pulled: `hutch template import NAME FILE` reads one that was saved to a file"},
        {"push", "`hutch snapshot export NAME` writes a snapshot to a file"},
        {"load", "`hutch template import NAME FILE` reads an image"},
        {"save", "`hutch snapshot create ID` keeps the state of a sandbox"},
        {"commit", "`hutch snapshot create ID` keeps the state of a sandbox"},
        {"attach", "`hutch sh ID` opens a terminal in a sandbox"},
        {"ssh", "`hutch sh ID` opens a terminal in a sandbox"},
        {"shell", "`hutch sh ID` opens a terminal in a sandbox"},
        {"login", "the client needs no login; set HUTCH_API_KEY to use another machine's daemon"},
        {"rename", "there is no verb for it: PATCH /v1/sandboxes/ID {\"name\":…}"},
        {"port", "`hutch url ID PORT` prints the address of a port in a sandbox"},
        {"prune", "nothing is removed in bulk; `hutch usage` shows what snapshots and paused sandboxes take"},
        {"system", "`hutch usage` shows what snapshots and paused sandboxes take, `hutch doctor` checks the host"},
        {"list", "`hutch ls` lists sandboxes"},
        {"volumes", "`hutch volume ls` lists volumes"},
        {"templates", "`hutch template ls` lists templates"},
        {"wait", "`hutch exec ID -- CMD` waits for its command; `hutch events` shows what happens to sandboxes"},
        {"diff", "`hutch snapshot ls` shows how snapshots descend; there is no list of changed files"},
    };
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (!strcmp(words[i].name, name))
            return words[i].answer;
    return NULL;
}

const struct cmd *cmd_find(const struct cmd *const *list, const char *name)
{
    for (; *list; list++)
        if (!strcmp((*list)->name, name))
            return *list;
    return NULL;
}

static const struct opt *opt_long(const struct cmd *c, const char *s, size_t n)
{
    for (const struct opt *o = c->opts; o && o->name; o++)
        if (strlen(o->name) == n && !memcmp(o->name, s, n))
            return o;
    return NULL;
}
static const struct opt *opt_short(const struct cmd *c, char l)
{
    for (const struct opt *o = c->opts; o && o->name; o++)
        if (o->letter == l)
            return o;
    return NULL;
}

static int set(struct args *a, const struct opt *o, const char *value, struct err *e)
{
    if (a->nset == ARGS_OPTS_MAX)
        return err_set(e, E_INVALID, "too many options");
    a->set[a->nset].opt = o;
    a->set[a->nset++].value = value;
    return 0;
}

static int parse_long(struct args *a, int argc, char **argv, int *i, struct err *e)
{
    const char *s = argv[*i] + 2, *eq = strchr(s, '=');
    size_t n = eq ? (size_t)(eq - s) : strlen(s);
    const struct opt *o = opt_long(a->cmd, s, n);
    if (!o) {
        char word[64], shown[160];
        (void)snprintf(word, sizeof word, "%.*s", (int)(n > 60 ? 60 : n), s);
        const char *near = suggest(word, opt_at, a->cmd->opts);
        esc_text(str_of(word), shown, sizeof shown);
        return near ? err_set(e, E_INVALID, "unknown option --%s; did you mean --%s?", shown, near)
                    : err_set(e, E_INVALID, "unknown option --%s", shown);
    }
    if (o->kind == 'f')
        return eq ? err_set(e, E_INVALID, "option --%s takes no value", o->name) : set(a, o, NULL, e);
    if (!eq && *i + 1 >= argc)
        return err_set(e, E_INVALID, "option --%s needs a value: %s", o->name, o->arg);
    return set(a, o, eq ? eq + 1 : argv[++*i], e);
}

static int parse_short(struct args *a, int argc, char **argv, int *i, struct err *e)
{
    for (const char *s = argv[*i] + 1; *s; s++) {
        const struct opt *o = opt_short(a->cmd, *s);
        if (!o && *s == 'h') {
            a->help = true;
            return 0;
        }
        if (!o) {
            char shown[16];
            esc_text((struct str){s, 1}, shown, sizeof shown);
            return err_set(e, E_INVALID, "unknown option -%s", shown);
        }
        if (o->kind == 'f') {
            if (set(a, o, NULL, e))
                return -1;
            continue;
        }
        if (s[1])
            return set(a, o, s + 1, e);
        if (*i + 1 >= argc)
            return err_set(e, E_INVALID, "option -%c needs a value: %s", *s, o->arg);
        return set(a, o, argv[++*i], e);
    }
    return 0;
}

int args_parse(const struct cmd *c, int argc, char **argv, struct args *a, struct err *e)
{
    *a = (struct args){.cmd = c, .v = argv + 1};
    int i = 1;
    for (; i < argc; i++) {
        char *s = argv[i];
        if (!strcmp(s, "--")) {
            a->dashdash = a->n == 0;
            i++;
            break;
        }
        if (s[0] != '-' || !s[1]) { /* "-" alone is a value: standard input or output */
            a->v[a->n++] = s;
            if (a->n != c->stop_at)
                continue;
            i++;
            break;
        }
        if (!strcmp(s, "--help")) {
            a->help = true;
            return 0;
        }
        if (s[1] == '-' ? parse_long(a, argc, argv, &i, e) : parse_short(a, argc, argv, &i, e))
            return -1;
        if (a->help)
            return 0;
    }
    for (; i < argc; i++)
        a->v[a->n++] = argv[i];
    if (a->n < c->min)
        return err_set(e, E_INVALID, "%s: too few arguments; it takes: %s", c->name, c->usage);
    if (c->max >= 0 && a->n > c->max)
        return err_set(e, E_INVALID, "%s: too many arguments; it takes: %s", c->name, *c->usage ? c->usage : "none");
    return 0;
}

bool args_flag(const struct args *a, const char *name)
{
    for (int i = 0; i < a->nset; i++)
        if (!strcmp(a->set[i].opt->name, name))
            return true;
    return false;
}

const char *args_str(const struct args *a, const char *name, const char *def)
{
    for (int i = a->nset; i-- > 0;)
        if (!strcmp(a->set[i].opt->name, name))
            return a->set[i].value;
    return def;
}

const char *args_list(const struct args *a, const char *name, int *i)
{
    while (*i < a->nset) {
        int k = (*i)++;
        if (!strcmp(a->set[k].opt->name, name))
            return a->set[k].value;
    }
    return NULL;
}

int args_int(const struct args *a, const char *name, int64_t min, int64_t max, int64_t def, int64_t *ret, struct err *e)
{
    const char *s = args_str(a, name, NULL);
    int64_t v = def;
    if (s && (!str_i64(str_of(s), &v) || v < min || v > max))
        return err_set(e, E_INVALID, "--%s: must be a whole number from %lld to %lld", name, (long long)min, (long long)max);
    *ret = v;
    return 0;
}

int args_seconds(const struct args *a, const char *name, int64_t min, int64_t max, int64_t def, int64_t *ret, struct err *e)
{
    const char *s = args_str(a, name, NULL);
    int64_t v = def;
    if (s && (!dur_parse(s, &v) || v < min || v > max))
        return err_set(e, E_INVALID, "--%s: must be a duration from %lld to %lld seconds, such as 90, 5m or 1h30m", name, (long long)min,
                       (long long)max);
    *ret = v;
    return 0;
}

void cmd_help(const struct cmd *c, const char *parent, struct buf *out)
{
    buf_printf(out, "usage: hutch %s%s %s\n\n%s\n", parent, c->name, c->usage, c->help);
    if (c->sub) {
        buf_puts(out, "\n");
        for (const struct cmd *const *s = c->sub; *s; s++)
            buf_printf(out, "  %-24s %s\n", (*s)->name, (*s)->help);
        buf_printf(out, "\n`hutch %s%s VERB --help` explains one.\n", parent, c->name);
        return;
    }
    buf_puts(out, "\noptions:\n");
    for (const struct opt *o = c->opts; o && o->name; o++) {
        char left[64];
        (void)snprintf(left, sizeof left, "%c%c%s--%s%s%s", o->letter ? '-' : ' ', o->letter ? o->letter : ' ', o->letter ? ", " : "  ",
                       o->name, o->arg ? " " : "", o->arg ? o->arg : "");
        buf_printf(out, "  %-30s %s\n", left, o->help);
    }
    buf_printf(out, "  %-30s %s\n", "-h, --help", "show this help");
    char name[64];
    (void)snprintf(name, sizeof name, "%s%s", parent, c->name);
    const char *const *ex = cmd_examples(name);
    for (int i = 0; ex && i < 2; i++)
        buf_printf(out, "%s  hutch %s\n", i ? "" : "\nexamples:\n", ex[i]);
}
