/* hutch man: the page hutch(1), from the tables that parsing uses. For the
 * build (Makefile); not in the list of verbs. */
#include "base/roff.h"
#include "cli/args.h"
#include "cli/cmds.h"
#include <stdio.h>

static void text(struct buf *b, const char *macro, const char *s)
{
    buf_puts(b, macro);
    roff_text(b, s);
    buf_putc(b, '\n');
}

static void option(struct buf *b, const struct opt *o)
{
    buf_puts(b, ".TP\n");
    if (o->letter)
        buf_printf(b, "\\fB\\-%c\\fR, ", o->letter);
    buf_puts(b, "\\fB\\-\\-");
    roff_text(b, o->name);
    buf_puts(b, "\\fR");
    if (o->arg) {
        buf_puts(b, " \\fI");
        roff_text(b, o->arg);
        buf_puts(b, "\\fR");
    }
    buf_putc(b, '\n');
    text(b, "", o->help);
}

static void verb(struct buf *b, const struct cmd *c, const char *parent)
{
    buf_puts(b, ".SS \"hutch ");
    roff_text(b, parent);
    roff_text(b, c->name);
    buf_puts(b, "\"\n.B hutch ");
    roff_text(b, parent);
    text(b, "", c->name);
    if (*c->usage)
        text(b, "", c->usage);
    buf_puts(b, ".PP\n");
    text(b, "", c->help);
    for (const struct opt *o = c->opts; o && o->name; o++)
        option(b, o);
    auto_buf up = {0};
    buf_printf(&up, "%s%s ", parent, c->name);
    for (const struct cmd *const *s = c->sub; s && *s; s++)
        verb(b, *s, up.p);
}

static const struct {
    const char *name, *help;
} environment[] = {
    {"HUTCH_HOME, HUTCH_RUN", "Where the daemon keeps its state and its sockets; see hutchd(8)."},
    {"HUTCH_URL, HUTCH_API_KEY", "Another daemon, and the key for it."},
    {"HUTCH_CA", "A file of certificates (PEM) to trust besides the system's, for https."},
    {"HUTCH_NO_START", "Set and not 0: never start the daemon."},
    {"HUTCH_CONFIG", "The settings file, instead of /etc/hutch/hutchd.conf."},
    {"NO_COLOR", "No colours."},
};

static int exec_man(struct cli *x, struct args *a)
{
    auto_buf b = {0};
    (void)x, (void)a;
    buf_puts(
        &b,
        ".TH HUTCH 1 \"\" \"hutch " HUTCH_VERSION
        "\" \"User commands\"\n.SH NAME\nhutch \\- run untrusted code in sandboxes\n"
        ".SH SYNOPSIS\n.B hutch\n[\\-\\-url \\fIURL\\fR] \\fIVERB\\fR [\\fIoptions\\fR] ...\n"
        ".SH DESCRIPTION\n.B hutch\nis the command line of\n.BR hutchd (8),\n"
        "a daemon that runs code in microVMs, containers and isolates.\nOn the local machine it starts the daemon when that is needed.\n"
        "Where a verb takes an ID, the name of a sandbox works too.\n.SH VERBS\n");
    for (const struct cmd *const *c = cmds; *c; c++)
        verb(&b, *c, "");
    buf_puts(&b, ".SH ENVIRONMENT\n");
    for (size_t i = 0; i < sizeof environment / sizeof *environment; i++) {
        text(&b, ".TP\n.B ", environment[i].name);
        text(&b, "", environment[i].help);
    }
    buf_puts(
        &b,
        ".SH EXIT STATUS\n.B hutch run\nand\n.B hutch exec\nexit with the status of the command.\n"
        "64 means a mistake on the command line.\n.SH SEE ALSO\n.BR hutchd (8),\n.BR hutch\\-spawn (8)\n");
    (void)fwrite(b.p, 1, b.n, stdout);
    return 0;
}
const struct cmd cmd_man = {
    .name = "man", .usage = "", .help = "print the man page hutch(1)", .exec = exec_man};
