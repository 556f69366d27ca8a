/* Volumes of a VM that was copied with its memory. They are mounted in that
 * memory, and processes in it use them: a machine made of it has the same ones
 * at the same places, each served anew for it (volumes_connect), or is refused.
 * More of them at other places are no harm. */
#include "core/host/event.h"
#include "core/sandbox/object.h"
#include "core/catalog/snapshot.h"
#include "core/volume/volume.h"
#include <stdio.h>
#include <string.h>

#define MODE 3 /* "rw ", "ro ", then the id */

void snapshot_note_volumes(struct snapshot *s, const struct sandbox *sb)
{
    struct attachment *a;
    char text[MODE + 22];
    list_each(a, (struct list *)(uintptr_t)&sb->attachments, of_sandbox) {
        (void)snprintf(text, sizeof text, "%s %s", a->read_only ? "ro" : "rw", a->volume->id);
        kv_set(&s->volumes, str_of(a->path), str_of(text));
    }
}

int snapshot_volumes_fit(const struct snapshot *s, const struct sandbox *sb, struct err *e)
{
    struct snapshot now = {0};
    int rc = 0;
    snapshot_note_volumes(&now, sb);
    for (size_t i = 0; !rc && i < s->volumes.n; i++) {
        const char *path = s->volumes.at[i].k, *has = kv_get(&now.volumes, path);
        if (!has || strcmp(has, s->volumes.at[i].v))
            rc = err_set(
                e, E_CONFLICT,
                "the volume that was at '%.100s' when the snapshot was taken is no longer attached to the sandbox; memory: false restores the files alone",
                path);
    }
    kv_free(&now.volumes);
    return rc;
}

static const struct volume_mount *asked_at(const struct sandbox_spec *spec, const char *path)
{
    for (size_t i = 0; i < spec->nvolumes; i++)
        if (!strcmp(spec->volumes[i].path, path))
            return &spec->volumes[i];
    return NULL;
}

int snapshot_mounts(const struct snapshot *s, struct sandbox_spec *spec, struct volume_mount *ret,
                    struct err *e)
{
    size_t n = spec->nvolumes;
    if (n > VOLUMES_PER_SANDBOX)
        return 0; /* refused by volumes_check */
    for (size_t i = 0; i < n; i++)
        ret[i] = spec->volumes[i];
    for (size_t i = 0; i < s->volumes.n; i++) {
        const char *path = s->volumes.at[i].k, *text = s->volumes.at[i].v;
        struct volume *v = strlen(text) > MODE ? volume_find(s->core, text + MODE, NULL) : NULL;
        const struct volume_mount *m = asked_at(spec, path);
        bool read_only = !strncmp(text, "ro", 2);
        if (!v)
            return err_set(
                e, E_CONFLICT,
                "the volume that was at '%.100s' when the snapshot was taken no longer exists; memory: false boots the files without it",
                path);
        if (m && (volume_find(s->core, m->volume, NULL) != v || m->read_only != read_only))
            return err_set(
                e, E_INVALID,
                "volumes: '%.64s' is at '%.100s' in the memory of the snapshot, %s: leave it out, or memory: false",
                v->name, path, read_only ? "read-only" : "to write");
        if (m)
            continue;
        if (n == VOLUMES_PER_SANDBOX)
            return err_set(e, E_INVALID,
                           "at most %d volumes in a sandbox, including those of the snapshot",
                           VOLUMES_PER_SANDBOX);
        ret[n++] = (struct volume_mount){.volume = v->id, .path = path, .read_only = read_only};
    }
    spec->volumes = ret;
    spec->nvolumes = n;
    return 0;
}
