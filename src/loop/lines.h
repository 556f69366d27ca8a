/* Text lines from a pipe, bounded: progress of tools. Main loop only. */
#pragma once
#include "base/buf.h"
#include "loop/loop.h"
#include <stdbool.h>
struct lines {
    struct io io;
    int fd;
    struct buf buf;
    void (*fn)(void *arg, char *line);
    void (*eof)(void *arg);
    void *arg;
    bool skipping;
};
void lines_start(struct lines *l, struct loop *loop, int fd /* taken */,
                 void (*fn)(void *arg, char *line), void (*eof)(void *arg) /* may be NULL */,
                 void *arg);
void lines_stop(struct lines *l); /* safe on a zeroed or stopped one */
