#include "api/render.h"
#include "base/clock.h"

void put_time(struct jw *w, const char *key, int64_t wall_ns)
{
    char t[32];
    if (wall_ns > 0)
        clock_rfc3339(wall_ns, t);
    jw_kv_str(w, key, wall_ns > 0 ? t : NULL);
}
