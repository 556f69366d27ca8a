/* hutch completion bash: a script made from the verb tables, so that it cannot
 * fall behind them. Names of sandboxes and templates are asked for when the key
 * is pressed; HUTCH_NO_START keeps that from starting a daemon. */
#include "cli/args.h"
#include "cli/cmds.h"
#include <stdio.h>
#include <string.h>

static void opt_words(const struct cmd *c, struct buf *out)
{
    for (const struct opt *o = c->opts; o && o->name; o++)
        buf_printf(out, "--%s ", o->name);
    buf_puts(out, "--help");
}

static void one(const struct cmd *c, const char *parent, struct buf *out)
{
    if (c->sub) {
        buf_printf(out, "    '%s%s') words='", parent, c->name);
        for (const struct cmd *const *s = c->sub; *s; s++)
            buf_printf(out, "%s%s", s == c->sub ? "" : " ", (*s)->name);
        buf_puts(out, " --help' ;;\n");
        for (const struct cmd *const *s = c->sub; *s; s++) {
            char up[64];
            (void)snprintf(up, sizeof up, "%s ", c->name);
            one(*s, up, out);
        }
        return;
    }
    buf_printf(out, "    '%s%s') opts='", parent, c->name);
    opt_words(c, out);
    buf_printf(out, "' args='%s' ;;\n", c->words ? c->words : "");
}

/* Values of options: same name, same words, whatever the verb. */
static void values(struct buf *out)
{
    buf_puts(out, "    case $prev in\n");
    const struct opt *seen[64];
    size_t n = 0;
    for (const struct cmd *const *c = cmds; *c; c++)
        for (const struct cmd *const *s = (*c)->sub ? (*c)->sub : (const struct cmd *const[]){*c, NULL}; *s; s++)
            for (const struct opt *o = (*s)->opts; o && o->name; o++) {
                size_t i = 0;
                while (i < n && strcmp(seen[i]->name, o->name) != 0)
                    i++;
                if (i < n || o->kind == 'f' || n == 64)
                    continue;
                seen[n++] = o;
                buf_printf(out, "    --%s) _hutch_from '%s'; return ;;\n", o->name, o->words ? o->words : "");
            }
    buf_puts(out, "    esac\n");
}

void completion_bash(struct buf *out); /* for the test */
void completion_bash(struct buf *out)
{
    buf_puts(out, "# bash completion for hutch; made by `hutch completion bash`\n"
                  "_hutch_from() {\n"
                  "    local w=$1\n"
                  "    case $w in\n"
                  "    @id) w=$(HUTCH_NO_START=1 hutch ls -q 2>/dev/null) ;;\n"
                  "    @template) w=$(HUTCH_NO_START=1 hutch template ls 2>/dev/null | awk 'NR > 1 { print $1 }') ;;\n"
                  "    @file) mapfile -t COMPREPLY < <(compgen -f -- \"$cur\"); compopt -o filenames 2>/dev/null; return ;;\n"
                  "    @verb) w=$_hutch_verbs ;;\n"
                  "    esac\n"
                  "    mapfile -t COMPREPLY < <(compgen -W \"$w\" -- \"$cur\")\n"
                  "}\n"
                  "_hutch_verbs='");
    for (const struct cmd *const *c = cmds; *c; c++)
        buf_printf(out, "%s%s", c == cmds ? "" : " ", (*c)->name);
    buf_puts(out, "'\n"
                  "_hutch() {\n"
                  "    local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]} verb='' sub='' i words='' opts='' args=''\n"
                  "    COMPREPLY=()\n"
                  "    for ((i = 1; i < COMP_CWORD; i++)); do\n"
                  "        case ${COMP_WORDS[i]} in\n"
                  "        --) mapfile -t COMPREPLY < <(compgen -f -- \"$cur\"); return ;;\n"
                  "        -*) ;;\n"
                  "        *) if [[ -z $verb ]]; then verb=${COMP_WORDS[i]}; elif [[ -z $sub ]]; then sub=${COMP_WORDS[i]}; fi ;;\n"
                  "        esac\n"
                  "    done\n"
                  "    if [[ -z $verb ]]; then _hutch_from \"$_hutch_verbs --url --help\"; return; fi\n");
    values(out);
    buf_puts(out, "    case $verb in\n    ");
    bool first = true;
    for (const struct cmd *const *c = cmds; *c; c++)
        if ((*c)->sub) {
            buf_printf(out, "%s%s", first ? "" : "|", (*c)->name);
            first = false;
        }
    buf_puts(out, ") [[ -n $sub ]] && verb+=\" $sub\" ;;\n    esac\n    case $verb in\n");
    for (const struct cmd *const *c = cmds; *c; c++)
        one(*c, "", out);
    buf_puts(out, "    esac\n"
                  "    if [[ -n $words ]]; then _hutch_from \"$words\"\n"
                  "    elif [[ $cur == -* ]]; then _hutch_from \"$opts\"\n"
                  "    else _hutch_from \"$args\"; fi\n"
                  "}\n"
                  "complete -F _hutch hutch\n");
}

static int exec_completion(struct cli *x, struct args *a)
{
    if (strcmp(a->v[0], "bash") != 0)
        return cli_usage(x, "completion: only bash is known");
    auto_buf b = {0};
    completion_bash(&b);
    (void)fwrite(b.p, 1, b.n, stdout);
    return 0;
}
const struct cmd cmd_completion = {.name = "completion", .usage = "bash", .help = "print a completion script: source <(hutch completion bash)", .min = 1, .max = 1,
                                   .words = "bash", .exec = exec_completion};
