#include "core/sandbox/life.h"
#include "base/buf.h"
#include "json/read.h"
#include "json/write.h"
#include <string.h>

const char *pause_name(enum pause_kind k)
{
    return k == PAUSE_DISK ? "disk" : k == PAUSE_STANDBY ? "standby" : NULL;
}

static const char *const whys[WHY_MAX] = {"call", "timeout", "idle", "shutdown", "quota"};
const char *pause_why_name(enum pause_why w)
{
    return (unsigned)w < WHY_MAX ? whys[w] : whys[WHY_CALL];
}

const char *on_timeout_name(enum on_timeout o) { return o == ON_TIMEOUT_PAUSE ? "pause" : "kill"; }
int on_timeout_parse(const char *s)
{
    return !strcmp(s, "pause") ? ON_TIMEOUT_PAUSE : !strcmp(s, "kill") ? ON_TIMEOUT_KILL : -1;
}

char *life_to_json(const struct life *l)
{
    struct buf b = {0};
    struct jw w;
    jw_init(&w, &b);
    jw_obj(&w);
    jw_kv_bool(&w, "auto_resume", l->auto_resume);
    jw_kv_bool(&w, "files_only", l->files_only);
    jw_kv_u64(&w, "idle_s", l->idle_s);
    jw_kv_str(&w, "on_idle", on_timeout_name(l->on_idle));
    jw_kv_u64(&w, "lifetime_s", l->lifetime_s);
    jw_kv_bool(&w, "kept", l->kept);
    if (l->paused) {
        jw_kv_str(&w, "paused", pause_name(l->paused));
        jw_kv_str(&w, "why", pause_why_name(l->why));
        jw_kv_bool(&w, "memory", l->memory);
        jw_kv_i64(&w, "paused_ns", l->paused_ns);
        jw_kv_u64(&w, "bytes", l->bytes);
        jw_kv_u64(&w, "held", l->held);
    }
    jw_end(&w);
    return buf_take(&b);
}

int life_from_json(struct life *l, const char *text, struct err *e)
{
    *l = (struct life){0};
    if (!text)
        return 0;
    auto_json j = json_parse_obj(text, strlen(text), e);
    struct str paused = {0}, why = {0}, on_idle = {0};
    int64_t bytes = 0, held = 0, idle = 0, lifetime = 0;
    if (!j || json_bool(j, "auto_resume", false, &l->auto_resume, e) ||
        json_bool(j, "files_only", false, &l->files_only, e) ||
        json_str(j, "paused", &paused, false, e) || json_bool(j, "memory", false, &l->memory, e) ||
        json_i64(j, "paused_ns", 0, INT64_MAX, 0, &l->paused_ns, e) ||
        json_i64(j, "bytes", 0, INT64_MAX, 0, &bytes, e) ||
        json_i64(j, "held", 0, INT64_MAX, 0, &held, e) ||
        json_i64(j, "idle_s", 0, UINT32_MAX, 0, &idle, e) ||
        json_i64(j, "lifetime_s", 0, UINT32_MAX, 0, &lifetime, e) ||
        json_bool(j, "kept", false, &l->kept, e) || json_str(j, "on_idle", &on_idle, false, e) ||
        json_str(j, "why", &why, false, e))
        return -1;
    l->bytes = (uint64_t)bytes;
    l->held = (uint64_t)held;
    l->idle_s = (uint32_t)idle, l->lifetime_s = (uint32_t)lifetime;
    l->on_idle = str_eqz(on_idle, "pause") ? ON_TIMEOUT_PAUSE : ON_TIMEOUT_KILL;
    for (int i = 0; i < WHY_MAX; i++)
        if (str_eqz(why, whys[i]))
            l->why = (enum pause_why)i;
    l->paused = str_eqz(paused, "disk")      ? PAUSE_DISK
                : str_eqz(paused, "standby") ? PAUSE_STANDBY
                                             : PAUSE_NONE;
    return 0;
}
