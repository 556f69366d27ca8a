/* Between the warden of an isolate (guest/isolate.h) and the library in its
 * interpreter (zygote/zygote.c): one SEQPACKET socket, one message each way per
 * call, descriptors beside it. Both ends are built together and run on one
 * machine: plain structs.
 *
 * The result pipe of a call (ZY_RESULT) carries, in this order:
 *   'L'                  the filter is on; written by the library, before any
 *                        of the caller's code
 *   'V' json | 'E' json  the value, or an error object; written by the driver
 *   struct zy_trap       only if the call died of SIGSYS: the last bytes */
#pragma once
#include <stdint.h>

#define ZY_DIR      "/run"            /* read-only: the library, the driver, the filter */
#define ZY_LIBRARY  ZY_DIR "/zygote.so"
#define ZY_FILTER   ZY_DIR "/call.bpf" /* struct sock_filter[] */
#define ZY_SOCKET   9                  /* number of the socket in the interpreter */

#define ZY_LEAVE    0x48555400         /* alarm(ZY_LEAVE + status) of a call ends it at once */

enum { ZY_STDIN, ZY_STDOUT, ZY_STDERR, ZY_RESULT, ZY_FDS }; /* order of the descriptors, and their numbers in the call's process */

struct zy_call { /* warden -> library, with ZY_FDS descriptors */
    uint64_t id;
    uint64_t data_bytes;  /* RLIMIT_DATA above what the interpreter holds itself */
    uint64_t space_bytes; /* RLIMIT_AS, likewise */
    uint64_t cpu_s;       /* RLIMIT_CPU: the backstop of the warden's own count */
};

enum zy_kind { ZY_READY = 1 /* the interpreter is loaded */, ZY_STARTED, ZY_FAILED /* no process: sys is the errno */ };
struct zy_note { /* library -> warden */
    uint64_t id;
    uint32_t kind;
    int32_t pid;          /* STARTED: a child of the warden */
    int32_t sys;
    uint32_t pad;
};

#define ZY_TRAP_MAGIC "\0SYS"
struct zy_trap { char magic[4]; uint32_t nr; uint64_t arg[3]; };
