#include "core/host/event.h"
#include "base/buf.h"
#include "base/clock.h"
#include "core/host/host.h"
#include "store/store.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define EVENTS_KEPT 4096

struct events {
    struct event at[EVENTS_KEPT];
    uint64_t head;
    struct list followers;
};

void events_init(struct core *c)
{
    c->events = xcalloc(1, sizeof *c->events);
    list_init(&c->events->followers);
}
void events_free(struct core *c)
{
    struct follower *f;
    list_each(f, &c->events->followers, link) { /* dialects go after us, and unfollow then */
        list_del(&f->link);
        list_init(&f->link);
    }
    for (size_t i = 0; i < EVENTS_KEPT; i++)
        free(c->events->at[i].data_json);
    free(c->events);
    c->events = NULL;
}

void event_emit(struct core *c, const char *type, const char *tenant, const char *sandbox,
                const char *data_json)
{
    struct events *all = c->events;
    struct event *ev = &all->at[all->head % EVENTS_KEPT];
    free(ev->data_json);
    *ev = (struct event){.at_ns = clock_wall(), .data_json = xstrdup(data_json ? data_json : "{}")};
    (void)snprintf(ev->type, sizeof ev->type, "%s", type);
    (void)snprintf(ev->tenant, sizeof ev->tenant, "%s", tenant ? tenant : "");
    (void)snprintf(ev->sandbox, sizeof ev->sandbox, "%s", sandbox ? sandbox : "");
    struct event_row row = {.at_wall_ns = ev->at_ns,
                            .type = ev->type,
                            .sandbox = *ev->sandbox ? ev->sandbox : NULL,
                            .data_json = ev->data_json};
    ev->seq = (uint64_t)store_add_event(c->store, &row, NULL, NULL);
    all->head++;
    struct follower *f;
    list_each(f, &all->followers, link)
        f->fn(f->arg, ev);
}

void event_follow(struct core *c, struct follower *f)
{
    list_add_tail(&c->events->followers, &f->link);
}
void event_unfollow(struct follower *f) { list_del(&f->link); }

void event_each(struct core *c, const struct caller *who, uint64_t since, const char *sandbox,
                void (*fn)(void *arg, const struct event *ev), void *arg)
{
    const struct events *all = c->events;
    for (uint64_t i = all->head > EVENTS_KEPT ? all->head - EVENTS_KEPT : 0; i < all->head; i++) {
        const struct event *ev = &all->at[i % EVENTS_KEPT];
        if (ev->seq > since && caller_sees(who, ev->tenant) &&
            (!sandbox || !strcmp(sandbox, ev->sandbox)))
            fn(arg, ev);
    }
}
