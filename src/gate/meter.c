/* What boxes and groups move and may move. Counts that a limit is set against
 * outlive the process: each is a small file beside the logs (<sandbox>.count,
 * and .group-<hash>.count for a tenant's day), written once a second while it changes. A crash
 * loses that second, not the count. */
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/log.h"
#include "crypto/digest.h"
#include "gate/gate_int.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>

#define SAVE_NS   NS_PER_S
#define DIGITS    20 /* of any 64-bit number */
#define FILE_TEXT 64

uint64_t meter_may(struct box *b, uint64_t want, int64_t now)
{
    want = bucket_has(&b->meter.rate, want, now);
    for (int i = 0; i < b->ngroups; i++)
        want = bucket_has(&b->group[i]->meter.rate, want, now);
    return want;
}
static uint64_t today(void) { return (uint64_t)(clock_wall() / (24 * 3600 * NS_PER_S)); }
static void moved(struct meter *m, uint64_t in, uint64_t out)
{
    m->in += in, m->out += out;
    bucket_take(&m->rate, in + out);
}
void meter_moved(struct box *b, uint64_t in, uint64_t out)
{
    uint64_t day = today();
    moved(&b->meter, in, out);
    for (int i = 0; i < b->ngroups; i++) {
        struct group *gr = b->group[i];
        if (gr->day != day)
            gr->day = day, gr->meter.in = gr->meter.out = 0;
        moved(&gr->meter, in, out);
    }
    if (!b->g->save.armed)
        timer_arm(&b->g->save, SAVE_NS);
}
static bool spent(const struct meter *m) { return m->max_bytes && m->in + m->out >= m->max_bytes; }
bool meter_spent(const struct box *b)
{
    uint64_t day = today();
    for (int i = 0; i < b->ngroups; i++)
        if (b->group[i]->day == day && spent(&b->group[i]->meter))
            return true;
    return spent(&b->meter);
}
const char *meter_full(const struct box *b)
{
    if (b->meter.conns >= b->meter.max_conns)
        return "the sandbox has as many connections as its network policy allows";
    for (int i = 0; i < b->ngroups; i++)
        if (b->group[i]->meter.max_conns && b->group[i]->meter.conns >= b->group[i]->meter.max_conns)
            return i ? "the sandboxes of this tenant together have as many connections as the operator allows"
                     : "the sandboxes together have as many connections as the operator allows";
    return meter_spent(b) ? meter_why_spent(b) : NULL;
}
const char *meter_why_spent(const struct box *b)
{
    return spent(&b->meter) ? "the byte limit of the network policy is used up" : "the bytes that the operator allows this tenant in a day are used up";
}
bool meter_has_rate(const struct box *b)
{
    bool some = b->meter.rate.rate;
    for (int i = 0; i < b->ngroups; i++)
        some |= b->group[i]->meter.rate.rate != 0;
    return some;
}
void meter_conn(struct box *b, int by)
{
    b->meter.conns += (uint64_t)by;
    for (int i = 0; i < b->ngroups; i++)
        b->group[i]->meter.conns += (uint64_t)by;
}

/* ---- counts that stay ------------------------------------------------------------------------------------------------ */

static void box_file(const char *sandbox, char out[FILE_TEXT]) { (void)snprintf(out, FILE_TEXT, "%.21s" EGRESS_COUNT, sandbox); }
static void group_file(const char *name, char out[FILE_TEXT]) /* a name may hold anything */
{
    char hex[SHA256_HEX];
    sha256_hex(name, strlen(name), hex);
    (void)snprintf(out, FILE_TEXT, EGRESS_GROUP "%.32s" EGRESS_COUNT, hex);
}
/* Three numbers of a fixed width, so that one write replaces them all. */
static void save(struct gate *g, struct meter *m, uint64_t day, const char *file)
{
    char text[3 * (DIGITS + 1) + 1];
    if (!m->max_bytes || m->in + m->out == m->saved)
        return;
    auto_fd fd = openat(g->log_dir, file, O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0640);
    int n = snprintf(text, sizeof text, "%0*llu %0*llu %0*llu\n", DIGITS, (unsigned long long)m->in, DIGITS, (unsigned long long)m->out, DIGITS, (unsigned long long)day);
    if (fd < 0 || pwrite(fd, text, (size_t)n, 0) != n)
        log_warn("the count of bytes in %s cannot be written: %s", file, strerror(errno)); /* tried again while it changes */
    else
        m->saved = m->in + m->out;
}
static void load(struct gate *g, struct meter *m, uint64_t *day, const char *file)
{
    char text[3 * (DIGITS + 1)];
    uint64_t v[3];
    auto_fd fd = openat(g->log_dir, file, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0 || pread(fd, text, sizeof text, 0) != (ssize_t)sizeof text)
        return;
    for (size_t i = 0; i < 3; i++)
        if (!str_u64((struct str){text + i * (DIGITS + 1), DIGITS}, &v[i]))
            return;
    if (day && v[2] != today())
        return; /* of another day */
    m->in += v[0], m->out += v[1];
    m->saved = m->in + m->out;
    if (day)
        *day = v[2];
}
void meter_load_box(struct box *b)
{
    char file[FILE_TEXT];
    struct map_entry *m;
    for (size_t i = 0; (m = map_next(&b->g->boxes, &i));) /* of a sandbox that comes back the box before may still be here */
        if (!strcmp(((struct box *)m->value)->sandbox, b->sandbox))
            meter_save_box(m->value);
    box_file(b->sandbox, file);
    load(b->g, &b->meter, NULL, file);
}
void meter_load_group(struct gate *g, struct group *gr)
{
    char file[FILE_TEXT];
    group_file(gr->name, file);
    load(g, &gr->meter, &gr->day, file);
}
void meter_save_box(struct box *b)
{
    char file[FILE_TEXT];
    box_file(b->sandbox, file);
    save(b->g, &b->meter, 0, file);
}
void meters_save(void *arg)
{
    struct gate *g = arg;
    struct map_entry *m;
    char file[FILE_TEXT];
    for (size_t i = 0; (m = map_next(&g->boxes, &i));)
        meter_save_box(m->value);
    for (size_t i = 0; (m = map_next(&g->groups, &i));) {
        struct group *gr = m->value;
        group_file(gr->name, file);
        save(g, &gr->meter, gr->day, file);
    }
}
