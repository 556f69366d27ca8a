/* One lookup for each kind of thing, by who asks. What a caller does not see does
 * not exist; what it sees and may not change is E_FORBIDDEN in a request that
 * changes something (api_changes). Handlers of all dialects come through here. */
#include "api/api.h"
#include "api/gate.h"
#include "api/params.h"
#include "api/req.h"
#include "core/catalog/snapshot.h"
#include "core/catalog/template.h"
#include "core/network/secret.h"
#include "core/sandbox/sandbox.h"
#include "core/volume/volume.h"

struct caller api_caller(struct api *a, struct http_stream *s)
{
    struct caller who = {.role = ROLE_NONE, .tenant = ""};
    struct err e;
    if (api_vouched(s))
        return caller_daemon;
    if (gate_caller(api_core(a), s, &who, &e)) /* its key was revoked while the request ran */
        return (struct caller){.role = ROLE_NONE, .tenant = ""};
    return who;
}

int api_still(struct api *a, struct http_stream *s, struct err *e)
{
    struct caller who = api_caller(a, s);
    if (!api_changes(s) || caller_makes(&who))
        return 0;
    return err_set(e, E_UNAUTHENTICATED,
                   "the API key was revoked or has expired while the request was sent");
}

int api_may_change(struct api *a, struct http_stream *s, const char *what, const char *tenant,
                   struct err *e)
{
    struct caller who = api_caller(a, s);
    if (!api_changes(s) || caller_changes(&who, tenant))
        return 0;
    return err_why(
        e, REASON_ROLE, E_FORBIDDEN,
        "this %s belongs to %s%.64s%s: changing it needs a key with role admin, or one of that tenant",
        what, *tenant ? "tenant '" : "the operator", tenant, *tenant ? "'" : "");
}

/* ---- sandboxes ---- */
struct sandbox *api_find_sandbox(struct api *a, struct http_stream *s, struct str id, struct err *e)
{
    const struct dialect *d = api_dialect(s);
    struct caller who = api_caller(a, s);
    struct sandbox *sb = NULL;
    if (d->sandbox)
        sb = d->sandbox(a, &who, id, e);
    else if (name_ok(id)) /* every id is a name by grammar */
        sb = sandbox_find_for(api_core(a), &who, id.p, e);
    else
        err_set(e, E_NOT_FOUND, "no sandbox has such an id or name");
    return sb && !api_may_change(a, s, "sandbox", sandbox_tenant(sb), e) ? sb : NULL;
}

struct sandbox *api_sandbox(struct api *a, struct http_stream *s)
{
    struct err e = {0};
    struct sandbox *sb = api_find_sandbox(a, s, http_param(s, "id"), &e);
    if (!sb)
        api_fail(s, &e, ABOUT_SANDBOX);
    return sb;
}

/* ---- volumes ---- */
static struct volume *find_volume(struct api *a, struct http_stream *s, struct str id,
                                  struct err *e)
{
    const struct dialect *d = api_dialect(s);
    struct caller who = api_caller(a, s);
    struct volume *v = NULL;
    if (d->volume)
        v = d->volume(a, &who, id, e);
    else if (id.p && strlen(id.p) == id.n && (id_ok(id) || volume_name_ok(id.p)))
        v = volume_find_for(api_core(a), &who, id.p, e);
    else
        err_set(e, E_NOT_FOUND, "no volume has such an id or name");
    return v && !api_may_change(a, s, "volume", v->tenant, e) ? v : NULL;
}

struct volume *api_volume(struct api *a, struct http_stream *s)
{
    struct err e = {0};
    struct volume *v = find_volume(a, s, http_param(s, "volume"), &e);
    if (!v)
        api_fail(s, &e, ABOUT_VOLUME);
    return v;
}

/* ---- snapshots, secrets, templates ---- */
struct snapshot *api_snapshot(struct api *a, struct http_stream *s, const char *id_or_name,
                              struct err *e)
{
    struct caller who = api_caller(a, s);
    struct snapshot *sn = snapshot_find_for(api_core(a), &who, id_or_name, e);
    return sn && !api_may_change(a, s, "snapshot", snapshot_tenant(sn), e) ? sn : NULL;
}

struct secret *api_secret(struct api *a, struct http_stream *s, const char *id_or_name,
                          struct err *e)
{
    struct caller who = api_caller(a, s);
    struct secret *k = secret_find_for(api_core(a), &who, id_or_name, e);
    return k && !api_may_change(a, s, "secret", k->tenant, e) ? k : NULL;
}

struct template *api_template(struct api *a, struct http_stream *s, const char *name_or_id,
                              struct err *e)
{
    struct caller who = api_caller(a, s);
    struct template *t = template_find_for(api_core(a), &who, name_or_id, e);
    return t && !api_may_change(a, s, "template", t->tenant, e) ? t : NULL;
}
