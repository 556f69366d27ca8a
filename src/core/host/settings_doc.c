/* The table of settings for readers: Markdown for docs/configuration.md, a file
 * to edit for /etc/hutch, a part of the man page hutchd(8). */
#include "base/roff.h"
#include "core/host/settings.h"
#include <stdio.h>
#include <string.h>

/* Markdown without its marks: links become their text, code loses its quotes. */
static void put_plain(struct buf *out, const char *s, bool roff)
{
    auto_buf b = {0};
    for (; *s; s++) {
        const char *close = *s == '[' ? strstr(s, "](") : NULL,
                   *end = close ? strchr(close, ')') : NULL;
        if (end && !memchr(s, ' ', (size_t)(close - s))) {
            buf_put(&b, s + 1, (size_t)(close - s - 1));
            s = end;
        } else if (*s != '`')
            buf_putc(&b, *s);
    }
    if (roff)
        roff_text(out, b.n ? b.p : "");
    else
        buf_put(out, b.p, b.n);
}

static void put_default(struct buf *out, const struct setting *s, const char *quote)
{
    if (s->kind == SET_NUMBER || s->kind == SET_SWITCH)
        buf_printf(out, "%u", s->num);
    else if (s->kind == SET_ELSEWHERE)
        buf_puts(out, *s->def ? s->def : "empty");
    else if (*s->def)
        buf_printf(out, "%s%s%s", quote, s->def, quote);
    else
        buf_puts(out, "empty");
}
static void put_range(struct buf *out, const struct setting *s)
{
    if (s->kind == SET_NUMBER)
        buf_printf(out, " (%u to %u)", s->min, s->max);
}

static void markdown(struct buf *out, const struct setting *s)
{
    if (s->kind == SET_GROUP) {
        buf_printf(out, "%s### %s\n\n| variable | default | meaning |\n|---|---|---|\n",
                   out->n ? "\n" : "", s->help);
        return;
    }
    buf_printf(out, "| `%s` | ", s->name);
    put_default(out, s, "`");
    buf_printf(out, " | %s", s->help);
    put_range(out, s);
    buf_puts(out, " |\n");
}

#define CONF_WIDTH 78
/* As comments of at most CONF_WIDTH columns. */
static void put_comment(struct buf *out, const char *text)
{
    size_t col = 0;
    while (*text) {
        size_t word = strcspn(text, " ");
        if (!col || col + 1 + word > CONF_WIDTH) {
            buf_puts(out, col ? "\n#" : "#");
            col = 1;
        }
        buf_putc(out, ' ');
        buf_put(out, text, word);
        col += 1 + word;
        text += word + strspn(text + word, " ");
    }
    buf_putc(out, '\n');
}
static void conf(struct buf *out, const struct setting *s)
{
    if (s->kind == SET_GROUP) {
        buf_printf(out, "\n#### %s\n", s->help);
        return;
    }
    auto_buf b = {0}, def = {0};
    put_plain(&b, s->help, false);
    put_range(&b, s);
    buf_puts(&b, ".");
    if (s->kind == SET_ELSEWHERE && *s->def) {
        buf_puts(&b, " Default: ");
        put_plain(&b, s->def, false);
        buf_puts(&b, ".");
    }
    if (s->kind != SET_ELSEWHERE && strcmp(s->def ? s->def : "0", ""))
        put_default(&def, s, "");
    if (!strcmp(s->name, "HUTCH_CONFIG"))
        return; /* it says where this file is */
    buf_putc(out, '\n');
    put_comment(out, b.p);
    bool any = s->name[strlen(s->name) - 1] == '*';
    buf_printf(out, "#%.*s%s=%s\n", (int)(strlen(s->name) - any), s->name, any ? "NAME" : "",
               def.n ? def.p : "");
}

static void man(struct buf *out, const struct setting *s)
{
    if (s->kind == SET_GROUP) {
        buf_puts(out, ".SS ");
        roff_text(out, s->help);
        buf_putc(out, '\n');
        return;
    }
    auto_buf def = {0}, range = {0};
    put_default(&def, s, "");
    put_range(&range, s);
    buf_puts(out, ".TP\n.B ");
    roff_text(out, s->name);
    buf_putc(out, '\n');
    put_plain(out, s->help, true);
    roff_text(out, range.n ? range.p : "");
    buf_puts(out, ".\nDefault: ");
    put_plain(out, def.p, true);
    buf_puts(out, ".\n");
}

void settings_write(enum settings_form form, struct buf *out)
{
    static void (*const put[])(struct buf *, const struct setting *) = {markdown, conf, man};
    if (form == SETTINGS_CONF)
        buf_puts(out,
                 "# Settings of hutchd, read when it starts. A variable of the same name in the\n"
                 "# environment wins. The lines below show the defaults. See hutchd(8).\n");
    for (size_t i = 0; i < nsettings; i++)
        put[form](out, &settings[i]);
}
