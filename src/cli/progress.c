/* The progress line of out.h: "[#######---------]  40%  step text  12s". */
#include "base/clock.h"
#include "cli/out.h"
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#define BAR 20
#define REDRAW_NS (100 * NS_PER_MS)

static void clear(struct progress *p)
{
    if (p->tty && p->shown)
        (void)fputs("\r\033[K", stderr);
    p->shown = false;
}

static void draw(struct progress *p)
{
    static const char spin[] = "|/-\\";
    struct winsize w = {0};
    char bar[BAR + 1], age[24], head[64];
    int64_t now = clock_mono();
    dur_format(now - p->began, age);
    int cols = ioctl(STDERR_FILENO, TIOCGWINSZ, &w) == 0 && w.ws_col > 20 ? w.ws_col : 80;
    if (p->percent >= 0) {
        int full = p->percent * BAR / 100;
        for (int i = 0; i < BAR; i++)
            bar[i] = i < full ? '#' : '-';
        bar[BAR] = 0;
        (void)snprintf(head, sizeof head, "[%s] %3d%%", bar, p->percent);
    } else
        (void)snprintf(head, sizeof head, "%c", spin[(now / REDRAW_NS) % 4]);
    int room = cols - (int)strlen(head) - (int)strlen(age) - 5;
    int n = (int)strlen(p->step);
    if (n > room)
        n = room > 0 ? room : 0;
    while (n > 0 && ((unsigned char)p->step[n] & 0xc0) == 0x80) /* not through a character */
        n--;
    (void)fprintf(stderr, "\r\033[K%s%s%s  %.*s  %s", p->colour ? style_on(ST_GOOD) : "", head, p->colour ? STYLE_OFF : "", n, p->step, age);
    (void)fflush(stderr);
    p->shown = true;
    p->drawn = now;
}

void progress_begin(struct progress *p)
{
    *p = (struct progress){.tty = isatty(STDERR_FILENO), .colour = out_colour(stderr), .percent = -1, .began = clock_mono()};
}

/* "unpacking: 3 MiB, 1114 files" is the step "unpacking". */
static size_t step_name(const char *step)
{
    const char *count = step;
    while ((count = strstr(count, ": ")) && !(count[2] >= '0' && count[2] <= '9'))
        count += 2;
    return count ? (size_t)(count - step) : strlen(step);
}

void progress_set(struct progress *p, int percent, const char *step)
{
    if (percent >= 0)
        p->percent = percent > 100 ? 100 : percent;
    if (step)
        esc_text(str_of(step), p->step, sizeof p->step);
    if (p->tty) {
        draw(p);
        return;
    }
    size_t n = step_name(p->step); /* a line per step: this may be a log that someone keeps */
    if (!n || (strlen(p->last) == n && !strncmp(p->step, p->last, n)))
        return;
    (void)snprintf(p->last, sizeof p->last, "%.*s", (int)n, p->step);
    (void)fprintf(stderr, "%s\n", p->last);
}

void progress_tick(struct progress *p)
{
    if (p->tty && p->step[0] && clock_mono() - p->drawn >= REDRAW_NS)
        draw(p);
}

void progress_line(struct progress *p, const char *line)
{
    char shown[1024];
    size_t n = strlen(line), from;
    while (n && line[n - 1] == '\r')
        n--;
    for (from = n; from && line[from - 1] != '\r'; from--)
        ; /* what a terminal would show last of a line that redraws itself */
    esc_text((struct str){line + from, n - from}, shown, sizeof shown);
    clear(p);
    (void)fprintf(stderr, "%s\n", shown);
    if (p->tty && p->step[0])
        draw(p);
}

void progress_end(struct progress *p, const char *last_words)
{
    char age[24], shown[256];
    clear(p);
    if (!last_words)
        return;
    dur_format(clock_mono() - p->began, age);
    esc_text(str_of(last_words), shown, sizeof shown);
    (void)fprintf(stderr, "%s (%s)\n", shown, age);
}
