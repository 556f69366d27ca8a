/* The server's half of wire/share.h: acts on the messages of one VM below one
 * directory. Everything it is told is hostile. Paths are resolved by the
 * kernel below the root, without links and without leaving the file system;
 * only regular files and directories are ever opened. Permissions of users
 * are the VM's kernel's business: whoever has the message channel is root of
 * the volume, or may only read it. */
#pragma once
#include "base/buf.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SERVE_HANDLES_MAX 8192

struct serve_handle { uint64_t fh; int fd; bool dir; };
struct serve {
    int root;           /* borrowed */
    bool read_only;
    struct serve_handle *handle; /* open addressing; fd -1: free, -2: was used */
    size_t size, n, used;
};

void serve_init(struct serve *s, int root, bool read_only);
void serve_fini(struct serve *s);
/* One whole message; its reply is appended. -1: not a message, the channel is not to be used any more. */
int serve_message(struct serve *s, const void *p, size_t n, struct buf *out) __attribute__((warn_unused_result));
