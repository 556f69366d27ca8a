#include "core/event.h"
#include "base/buf.h"
#include "base/clock.h"
#include "core/internal.h"
#include "store/store.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void event_emit(struct core *c, const char *type, const char *sandbox, const char *data_json)
{
    struct event *ev = &c->events[c->event_head % EVENTS_KEPT];
    free(ev->data_json);
    *ev = (struct event){.at_ns = clock_wall(), .data_json = xstrdup(data_json ? data_json : "{}")};
    (void)snprintf(ev->type, sizeof ev->type, "%s", type);
    (void)snprintf(ev->sandbox, sizeof ev->sandbox, "%s", sandbox ? sandbox : "");
    struct event_row row = {.at_wall_ns = ev->at_ns, .type = ev->type, .sandbox = *ev->sandbox ? ev->sandbox : NULL, .data_json = ev->data_json};
    ev->seq = (uint64_t)store_add_event(c->store, &row, NULL, NULL);
    c->event_head++;
    struct follower *f;
    list_each(f, &c->followers, link)
        f->fn(f->arg, ev);
}

void event_follow(struct core *c, struct follower *f) { list_add_tail(&c->followers, &f->link); }
void event_unfollow(struct follower *f) { list_del(&f->link); }

void event_each(struct core *c, uint64_t since, const char *sandbox, void (*fn)(void *arg, const struct event *ev), void *arg)
{
    uint64_t first = c->event_head > EVENTS_KEPT ? c->event_head - EVENTS_KEPT : 0;
    for (uint64_t i = first; i < c->event_head; i++) {
        const struct event *ev = &c->events[i % EVENTS_KEPT];
        if (ev->seq > since && (!sandbox || !strcmp(sandbox, ev->sandbox)))
            fn(arg, ev);
    }
}
