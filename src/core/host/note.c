#include "core/host/note.h"
#include "base/log.h"
#include "core/host/host.h"
#include "store/store.h"

static void note_stored(void *arg, const struct err *e)
{
    (void)arg;
    if (e)
        log_warn("a note could not be stored: %s", e->msg);
}

void core_note(struct core *c, const char *name, const char *text)
{
    store_put_meta(c->store, name, text, note_stored, NULL);
}

char *core_noted(struct core *c, const char *name)
{
    struct err e;
    return store_get_meta(c->store, name, &e);
}

int core_keyfile(struct core *c, const char *file, unsigned char ret[KEYFILE_BYTES], struct err *e)
{
    return keyfile_load(c->home_fd, file, ret, e);
}
