/* Templates: what sandboxes are made of. How they are made is in core/build/build.h. */
#pragma once
#include "base/err.h"
#include "base/list.h"
#include "json/kv.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
struct core;

struct template
{
    char id[22];
    char *name, *tenant; /* tenant "": everybody may start from it */
    int64_t created_ns;
    char *source, *parent /* id or NULL */;
    uint64_t size_bytes;
    uint32_t disk_min_mib;
    struct kv env;
    char *user, *workdir, *start, *ready; /* NULL: default */
    unsigned kernels;                     /* that run before anybody asks: kernels.h, warm.h */
    char *content_key;                    /* recipe hash, NULL */
    bool warm_container, warm_vm;
    bool building; /* on disk, not proven yet: found by its id only, and its build's to remove */
    bool retired;  /* another template took its name */
    bool
        packed; /* came with a snapshot pack: found by its id only, and goes with the last that stands on it */
    unsigned users; /* live sandboxes and boxes standing on it */
};
void template_free(struct template *t);
/* By id, or the name of one that all share. */
struct template *template_find(struct core *c, const char *name_or_id, struct err *e);
/* What the caller may start from: its tenant's own and, after these, what all share. */
struct caller;
struct template *template_find_for(struct core *c, const struct caller *who, const char *name_or_id,
                                   struct err *e);
size_t template_list(struct core *c, const struct caller *who, struct template **ret,
                     size_t max); /* likewise, by name */
struct template *template_named(struct core *c, const char *tenant,
                                const char *name); /* of exactly that tenant; NULL */
unsigned template_kernels(const struct template *t /* may be NULL */,
                          uint32_t memory_mib); /* its kernels, where there is room for them */
/* Refused while sandboxes stand on it or its build is not over. */
int template_remove(struct core *c, struct template *t,
                    void (*done)(void *arg, const struct err *e), void *arg, struct err *e);


/* -- for the rooms of core -- */
struct map;
struct manifest;
struct sandbox;
void catalog_init(struct core *c);
void catalog_free(struct core *c);
int templates_load(struct core *c, struct err *e);
void templates_free(struct core *c);
const struct map *templates(const struct core *c); /* by id */
struct template *template_at(const struct core *c, const char *id);
void template_enter(struct core *c, struct template *t); /* the catalogue's from now on */
void template_use(struct sandbox *sb, int by); /* 1: it needs its template; -1: not any more */
int templates_fd(const struct core *c);
int template_unlink(struct core *c, const char *id, struct err *e); /* worker */
struct template *template_adopt(struct core *c,
                                const struct manifest *m); /* its directory was just put in place */
void templates_collect(struct core *c); /* something that stood on a packed one may be gone */
