#include "core/life.h"
#include "base/buf.h"
#include "json/read.h"
#include "json/write.h"
#include <string.h>

const char *pause_name(enum pause_kind k) { return k == PAUSE_DISK ? "disk" : k == PAUSE_STANDBY ? "standby" : NULL; }

char *life_to_json(const struct life *l)
{
    struct buf b = {0};
    struct jw w;
    jw_init(&w, &b);
    jw_obj(&w);
    jw_kv_bool(&w, "auto_resume", l->auto_resume);
    jw_kv_bool(&w, "files_only", l->files_only);
    if (l->paused) {
        jw_kv_str(&w, "paused", pause_name(l->paused));
        jw_kv_bool(&w, "memory", l->memory);
        jw_kv_i64(&w, "paused_ns", l->paused_ns);
        jw_kv_u64(&w, "bytes", l->bytes);
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
    struct str paused = {0};
    int64_t bytes = 0;
    if (!j || json_bool(j, "auto_resume", false, &l->auto_resume, e) || json_bool(j, "files_only", false, &l->files_only, e) ||
        json_str(j, "paused", &paused, false, e) || json_bool(j, "memory", false, &l->memory, e) ||
        json_i64(j, "paused_ns", 0, INT64_MAX, 0, &l->paused_ns, e) || json_i64(j, "bytes", 0, INT64_MAX, 0, &bytes, e))
        return -1;
    l->bytes = (uint64_t)bytes;
    l->paused = str_eqz(paused, "disk") ? PAUSE_DISK : str_eqz(paused, "standby") ? PAUSE_STANDBY : PAUSE_NONE;
    return 0;
}
