/* Legacy sessions. An id is sealed text: revision, time of issue, owner and randomness under a MAC
 * whose key lies in the home. So a daemon that was restarted knows the sessions of the one before,
 * and clients, most of which never initialize again, do not notice. What a session owns besides is
 * either for the moment (streams, subscriptions) or an option of its default sandbox. */
#include "api/mcp/mcp.h"
#include "base/clock.h"
#include "base/enc.h"
#include "core/host/note.h"
#include "crypto/digest.h"
#include <stdio.h>
#include <stdlib.h>

#define PREFIX       "h1."
#define IDLE_NS      (24 * 3600 * NS_PER_S)
#define FLOW_KEPT_NS (300 * NS_PER_S)
#define SWEEP_NS     (30 * NS_PER_S)
#define ENDED_MAX    256
#define ENDED_NOTE   "mcp.ended" /* ids that were deleted: they stay so after a restart */

/* ---- sealed text ---- */
static void encode_url(const void *p, size_t n, struct buf *out)
{
    size_t from = out->n;
    base64_encode(p, n, out);
    while (out->n > from && out->p[out->n - 1] == '=')
        out->n--;
    for (size_t i = from; i < out->n; i++)
        out->p[i] = out->p[i] == '+' ? '-' : out->p[i] == '/' ? '_' : out->p[i];
    buf_reserve(out, 0);
    out->p[out->n] = 0;
}

static bool decode_url(struct str s, struct buf *out)
{
    auto_buf b = {0};
    for (size_t i = 0; i < s.n; i++) {
        if (s.p[i] == '+' || s.p[i] == '/' || s.p[i] == '=')
            return false;
        buf_putc(&b, s.p[i] == '-' ? '+' : s.p[i] == '_' ? '/' : s.p[i]);
    }
    return base64_decode(b.p ? b.p : "", b.n, out);
}

static void mac(const struct mcp *m, const char *purpose, struct str payload,
                unsigned char out[SHA256_BYTES])
{
    auto_buf b = {0};
    buf_printf(&b, "%s:", purpose);
    buf_put(&b, payload.p, payload.n);
    hmac_sha256(m->key, sizeof m->key, b.p, b.n, out);
}

void mcp_seal(const struct mcp *m, const char *purpose, struct str payload, struct buf *out)
{
    unsigned char sum[SHA256_BYTES];
    mac(m, purpose, payload, sum);
    encode_url(payload.p, payload.n, out);
    buf_putc(out, '.');
    encode_url(sum, sizeof sum, out);
}

bool mcp_unseal(const struct mcp *m, const char *purpose, struct str text, struct buf *payload)
{
    unsigned char sum[SHA256_BYTES];
    auto_buf given = {0};
    const char *dot = text.n ? memchr(text.p, '.', text.n) : NULL;
    if (!dot)
        return false;
    size_t n = (size_t)(dot - text.p);
    payload->n = 0;
    if (!decode_url((struct str){text.p, n}, payload) ||
        !decode_url((struct str){dot + 1, text.n - n - 1}, &given) || given.n != sizeof sum)
        return false;
    buf_reserve(payload, 0);
    payload->p[payload->n] = 0;
    mac(m, purpose, (struct str){payload->p, payload->n}, sum);
    if (!mem_eq_ct(sum, given.p, sizeof sum))
        return false;
    auto_buf again = {
        0}; /* base64 has several spellings of one text; what works once is told by it */
    mcp_seal(m, purpose, (struct str){payload->p, payload->n}, &again);
    return again.n == text.n && !memcmp(again.p, text.p, text.n);
}

/* ---- ids ---- */
static void owner_mark(const char *tenant, char out[17])
{
    char hex[SHA256_HEX];
    sha256_hex(tenant, strlen(tenant), hex);
    (void)snprintf(out, 17, "%.16s", hex);
}

static void make_id(const struct mcp *m, const char *tenant, enum mcp_version v, char *out)
{
    unsigned char salt[9];
    char hex[19], owner[17], text[80];
    auto_buf b = {0};
    random_bytes(salt, sizeof salt);
    hex_encode(salt, sizeof salt, hex);
    owner_mark(tenant, owner);
    int n = snprintf(text, sizeof text, "%d %lld %s %s", (int)v,
                     (long long)(clock_wall() / NS_PER_S), owner, hex);
    buf_puts(&b, PREFIX);
    mcp_seal(m, "session", (struct str){text, (size_t)n}, &b);
    (void)snprintf(out, MCP_SESSION_ID, "%s", b.p);
}

/* Of this owner, and issued or used within the last day as far as one can know: what this daemon
 * has not seen since its start a day ago is idle for so long. */
static bool id_valid(const struct mcp *m, struct str id, const char *tenant, enum mcp_version *ret)
{
    auto_buf text = {0};
    char owner[17], mine[17];
    int v;
    long long at;
    size_t skip = sizeof PREFIX - 1;
    if (id.n <= skip || id.n >= MCP_SESSION_ID || !str_starts(id, PREFIX) ||
        !mcp_unseal(m, "session", (struct str){id.p + skip, id.n - skip}, &text) ||
        sscanf(text.p, "%d %lld %16s", &v, &at, owner) != 3 || v < 0 || v >= MCP_2026_07_28)
        return false;
    owner_mark(tenant, mine);
    int64_t since = at * NS_PER_S > m->started_ns ? at * NS_PER_S : m->started_ns;
    *ret = (enum mcp_version)v;
    return !strcmp(owner, mine) && clock_wall() - since < IDLE_NS;
}

/* ---- the table ---- */
static struct session *enter(struct mcp *m, const char *id, const char *tenant, enum mcp_version v)
{
    struct session *ss = xcalloc(1, sizeof *ss);
    ss->m = m, ss->version = v, ss->level = -1, ss->used_ns = clock_mono();
    (void)snprintf(ss->id, sizeof ss->id, "%s", id);
    (void)snprintf(ss->tenant, sizeof ss->tenant, "%s", tenant);
    list_init(&ss->flows), list_init(&ss->calls), list_init(&ss->subscriptions);
    map_set(&m->sessions, ss->id, ss);
    return ss;
}

struct session *session_new(struct mcp *m, const char *tenant, enum mcp_version v)
{
    char id[MCP_SESSION_ID];
    make_id(m, tenant, v, id);
    return enter(m, id, tenant, v);
}

struct session *session_find(struct mcp *m, struct str id, const char *tenant)
{
    enum mcp_version v;
    char name[MCP_SESSION_ID];
    struct session *ss = map_get_n(&m->sessions, id.p, id.n);
    if (ss && strcmp(ss->tenant, tenant) != 0)
        return NULL;
    if (!ss) {
        if (map_get_n(&m->ended, id.p, id.n) || !id_valid(m, id, tenant, &v))
            return NULL;
        (void)snprintf(name, sizeof name, "%.*s", (int)id.n, id.p);
        ss = enter(m, name, tenant, v);
        ss->nflows = 1u << 20; /* numbers of streams of before are not given out again */
    }
    ss->used_ns = clock_mono();
    return ss;
}

static void session_free(struct session *ss)
{
    struct mcall *k;
    list_each(k, &ss->calls, of_session)
        mcall_cancel(k);
    subscriptions_drop(&ss->subscriptions);
    while (!list_empty(&ss->flows))
        flow_free(flow_of_link(ss->flows.next));
    flow_free(ss->push);
    map_del(&ss->m->sessions, ss->id);
    free(ss);
}

/* ---- ended ones ---- */
static void note_ended(struct mcp *m)
{
    auto_buf b = {0};
    struct map_entry *en;
    size_t i = 0;
    while ((en = map_next(&m->ended, &i)))
        buf_printf(&b, "%s ", en->key);
    core_note(m->core, ENDED_NOTE, b.n ? b.p : NULL);
}

static void forget_some(struct mcp *m)
{
    struct map_entry *en;
    size_t i = 0;
    while (m->ended.n >= ENDED_MAX && (en = map_next(&m->ended, &i)))
        map_del(&m->ended, en->key);
}

void session_end(struct session *ss)
{
    struct mcp *m = ss->m;
    forget_some(m);
    map_set(&m->ended, ss->id, m);
    session_free(ss);
    note_ended(m);
}

static void load_ended(struct mcp *m)
{
    char *text = core_noted(m->core, ENDED_NOTE);
    for (char *p = text, *save = NULL; text && (p = strtok_r(p, " ", &save)); p = NULL)
        map_set(&m->ended, p, m);
    free(text);
}

/* ---- time ---- */
static void sweep_flows(struct session *ss, int64_t now)
{
    for (struct list *l = ss->flows.next, *next; l != &ss->flows; l = next) {
        struct flow *f = flow_of_link(l);
        next = l->next;
        if (flow_over(f) && now - flow_ended_at(f) > FLOW_KEPT_NS)
            flow_free(f);
    }
}

static void session_sweep(void *arg)
{
    struct mcp *m = arg;
    struct map_entry *en;
    size_t i = 0;
    int64_t now = clock_mono();
    while ((en = map_next(&m->sessions, &i))) {
        struct session *ss = en->value;
        sweep_flows(ss, now);
        if (!ss->push && list_empty(&ss->calls) && now - ss->used_ns > IDLE_NS)
            session_free(ss);
    }
    timer_arm(&m->sweep, SWEEP_NS);
}

void sessions_start(struct mcp *m)
{
    m->started_ns = clock_wall();
    load_ended(m);
    timer_init(&m->sweep, m->loop, session_sweep, m);
    timer_arm(&m->sweep, SWEEP_NS);
}

void sessions_stop(struct mcp *m)
{
    struct map_entry *en;
    size_t i = 0;
    timer_stop(&m->sweep);
    while ((en = map_next(&m->sessions, &i)))
        session_free(en->value);
    map_free(&m->sessions);
    map_free(&m->ended);
}

/* ---- what it has ---- */
void session_tell(struct session *ss, struct str notification)
{
    if (ss->push)
        flow_send(ss->push, notification, true);
}

/* Its id may be forgotten with the daemon; the sandbox remembers whose it is. */
static struct sandbox *sandbox_bound(struct session *ss)
{
    enum { PAGE = 128 };
    struct sandbox *page[PAGE];
    char cursor[24] = "";
    for (bool more = true; more;) {
        struct sandbox_filter f = {.cursor = cursor};
        size_t n = sandbox_list(ss->m->core, &f, page, PAGE, &more, NULL);
        if (n > PAGE)
            return NULL;
        for (size_t i = 0; i < n; i++) {
            const char *of = kv_get(&page[i]->kept.dialect, OPT_MCP_SESSION);
            if (of && !strcmp(of, ss->id) && page[i]->state <= SB_PAUSED)
                return page[i];
        }
        more = more && n;
        if (more)
            (void)snprintf(cursor, sizeof cursor, "%lld", (long long)page[n - 1]->created_ns);
    }
    return NULL;
}

struct sandbox *session_sandbox(struct session *ss)
{
    struct sandbox *sb =
        *ss->sandbox ? sandbox_find(ss->m->core, ss->sandbox, NULL) : sandbox_bound(ss);
    if (!sb || sb->state > SB_PAUSED) {
        *ss->sandbox = 0;
        return NULL;
    }
    memcpy(ss->sandbox, sb->id, sizeof ss->sandbox);
    return sb;
}
