/* The progress line of out.h: "[#######---------]  40%  step text  12s". */
#include "base/clock.h"
#include "cli/out.h"
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#define BAR 20
#define REDRAW_NS (100 * NS_PER_MS)
#define LINE_NS NS_PER_S

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
    if (!p->step[0] || !strcmp(p->step, p->last))
        return; /* a line per step, not per percent */
    int64_t now = clock_mono();
    if (p->last[0] && now - p->drawn < LINE_NS)
        return; /* and of steps that fly by, one a second: this may be a build log someone keeps */
    p->drawn = now;
    (void)strcpy(p->last, p->step);
    if (p->percent >= 0)
        (void)fprintf(stderr, "[%3d%%] %s\n", p->percent, p->step);
    else
        (void)fprintf(stderr, "%s\n", p->step);
}

void progress_tick(struct progress *p)
{
    if (p->tty && p->step[0] && clock_mono() - p->drawn >= REDRAW_NS)
        draw(p);
}

void progress_line(struct progress *p, const char *line)
{
    char shown[1024];
    esc_text(str_of(line), shown, sizeof shown);
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
