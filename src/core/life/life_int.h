/* Between the files of this room, and for core/recover.c: how a sandbox gets its box, and loses it. */
#pragma once
#include "core/host/event.h"
#include "core/life/timers.h"
#include "core/sandbox/object.h"

void sandbox_release(struct sandbox *sb); /* its timers and its name */
void sandbox_drop_box(struct sandbox *sb, bool keep, void (*done)(void *arg),
                      void *arg); /* keep: its disk stays, and so does its template */
void sandbox_box_ended(struct sandbox *sb, enum end_reason why, const char *message,
                       bool host_fault);
/* configure.c: its box becomes this sandbox, with its volumes and its network in force; or its identity again, alone. */
void sandbox_configure(struct sandbox *sb, box_cb *cb, void *arg);
void sandbox_tell_identity(struct sandbox *sb, box_cb *cb, void *arg);
void sandbox_resumed(struct sandbox *sb); /* adopted: running again */
void sandbox_lost(struct sandbox *sb, enum end_reason why,
                  const char *message); /* its box is not there any more */
void sandbox_environment(
    const struct sandbox *sb,
    struct kv *ret); /* what every process of it gets: template, caller, dialect */
