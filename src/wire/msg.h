/* The vocabulary of the agent channel: operations, events and field tags.
 * One request opens one stream (ids chosen by the host, never 0, not reused
 * while open). The agent answers every request with exactly one FR_RES, last.
 * FR_RES payload = err_code(u8, base/err.h) + record; on error the record has
 * T_MESSAGE and perhaps T_WHY (a slug of err_why). Comments list request fields -> reply fields; [x] is optional,
 * x* repeats.
 *
 * Flow control: neither side sends more DATA bytes on a stream than it was
 * granted. The host grants the agent credit with T_CREDIT in the request and
 * FR_CREDIT later; the agent grants the host credit with FR_CREDIT. A stream
 * whose operation takes DATA from the host starts with CREDIT_INITIAL bytes
 * that need no grant, so a small write is one round trip; grants come on top. */
#pragma once

enum { CREDIT_INITIAL = 65536 };

/* PATH of a process where neither its request nor the sandbox has one. */
#define AGENT_PATH "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

enum agent_op {
    /* First request after every sync; until it succeeded once since the last sync every other op but
     * OP_PING is refused with E_UNAVAILABLE. T_ENTROPY (>= 32 bytes), T_WALL_NS, T_HOSTNAME, T_MACHINE_ID (32 hex),
     * T_GENERATION, T_SANDBOX, [T_ENV*: "K=V" given to every process], [T_USER default user], [T_CWD default cwd],
     * [T_FILE*: nested {T_PATH, T_MODE, T_BYTES} written before user code], [T_FLAGS: CFG_*]
     * -> T_GENERATION, T_WALL_NS (guest clock after the step), T_KERNEL (uname -r), T_VERSION (agent), T_MEM_BYTES.
     * Order inside: entropy + reseed, clock, hostname, machine-id, files, post-restore.d hooks, then the reply.
     * Any failing step fails the request and names itself in T_MESSAGE; nothing is answered as if it had worked. */
    OP_CONFIGURE = 1,
    OP_PING,    /* -> T_GENERATION */

    /* Processes. T_ARG* (argv; argv[0] searched in the user's PATH), [T_ENV*], [T_CWD], [T_USER], [T_STDIN 0=/dev/null
     * 1=pipe], [T_COLS, T_ROWS: PTY], [T_TAG], [T_TIMEOUT_MS], [T_CREDIT] (0 or absent = detached: output only in the ring)
     * Events: EV_STARTED, DATA*, EV_EXIT; then FR_RES. The stream stays open until the process has exited and its
     * output is at EOF (or it was killed by signal op/timeout: then at once after what was read so far).
     * Start failure (user, cwd, exec) is FR_RES with an error and no EV_STARTED. FR_CANCEL only detaches. */
    OP_START,
    /* [T_PID] or [T_TAG], T_OFFSET (byte position in the output; U64_MAX = from now on; U64_MAX - 1 = likewise, and a process
     * that ended more than 30 s ago is not found), T_CREDIT
     * -> events as for OP_START; EV_STARTED carries T_OFFSET actually started at (later than asked: bytes were lost).
     * An exited process stays attachable for at least 5 minutes (last 64 kept). */
    OP_ATTACH,
    OP_PROCS,       /* -> T_PROC*: nested {T_PID, [T_TAG], T_ARG*, [T_ENV* of the request], T_CWD, T_USER, T_WALL_NS start, T_OFFSET produced, [T_EXIT_KIND, T_EXIT_CODE], [T_COLS]} */
    OP_SIGNAL,      /* T_PID|T_TAG, T_SIGNAL, [T_FLAGS: SIG_ONE = only that process, default its group] */
    OP_RESIZE,      /* T_PID|T_TAG, T_COLS, T_ROWS */
    OP_INPUT,       /* T_PID|T_TAG, T_BYTES (<= 60 KiB): written in arrival order; reply once accepted */
    OP_CLOSE_STDIN, /* T_PID|T_TAG */

    /* Files. T_PATH: absolute, or relative to the home of T_USER (default user), "~/..." too. Created things belong to T_USER.
     * An entry (T_ENTRY) is nested {T_NAME, T_PATH, T_TYPE 'f' 'd' 'l' 'o', T_SIZE, T_MODE (07777 bits), T_UID, T_GID,
     * T_OWNER, T_GROUP, T_MTIME_NS, T_ATIME_NS, T_CTIME_NS, [T_TARGET resolved], [T_TARGET_TYPE, T_TARGET_MODE], [T_XATTR*: "user.k=v"]}. */
    OP_STAT,    /* T_PATH, [T_USER] -> T_ENTRY (of the link itself; T_TARGET* tell about its target), [T_FLAGS: STAT_REMOTE] */
    OP_LIST,    /* T_PATH, [T_DEPTH 1..], [T_USER] -> EV_ENTRIES {T_ENTRY*}* then FR_RES; depth-first, names in byte order */
    OP_MKDIR,   /* T_PATH, [T_MODE], [T_USER], [T_FLAGS: FILE_PARENTS] -> T_ENTRY */
    OP_MOVE,    /* T_PATH, T_DEST, [T_USER], [T_FLAGS: FILE_PARENTS] -> T_ENTRY */
    OP_REMOVE,  /* T_PATH, [T_USER], [T_FLAGS: FILE_RECURSIVE] */
    OP_SETATTR, /* T_PATH, [T_MODE], [T_OWNER], [T_GROUP], [T_UID], [T_GID], [T_USER] -> T_ENTRY */
    OP_SYMLINK, /* T_TARGET, T_PATH, [T_USER] -> T_ENTRY */
    OP_READ,    /* T_PATH, [T_OFFSET], [T_SIZE], [T_USER], T_CREDIT -> EV_ENTRIES (one), DATA(CH_FILE)*, FR_RES {T_SIZE sent} */
    OP_WRITE,   /* T_PATH, [T_MODE], [T_USER], [T_FLAGS: FILE_PARENTS|FILE_APPEND|FILE_EXCL|FILE_OWN], [T_NAME: "user.x." attributes
                 * beginning so are removed first], [T_XATTR*], then host DATA(CH_FILE)*, FR_EOF -> T_ENTRY */
    OP_WATCH,   /* T_PATH, [T_USER], [T_FLAGS: WATCH_RECURSIVE|WATCH_ENTRY] -> EV_STARTED, EV_WATCH* until FR_CANCEL */

    OP_METRICS,   /* -> T_CPU_NS, T_CPUS, T_MEM_BYTES, T_MEM_USED, T_MEM_CACHE, T_DISK_BYTES, T_DISK_USED, T_NPROC */
    OP_PORTS,     /* -> T_PORT*: listening TCP ports */
    OP_CONNECT,   /* T_PORT, T_CREDIT -> EV_STARTED once connected to 127.0.0.1 or ::1; DATA(CH_TUNNEL) both ways, FR_EOF half-close; FR_RES at the end */
    OP_GROW,      /* vm: grow the root file system to its device -> T_DISK_BYTES */
    OP_SYNC,      /* [T_FLAGS: SYNC_DROP = also drop clean caches]: flush file systems */
    OP_FREEZE,    /* [T_FLAGS: FREEZE_*]: freeze user processes, sync, freeze file systems (before a snapshot) */
    OP_THAW,      /* the other way round. [T_ENTROPY], [T_WALL_NS], [T_FILE*], [T_FLAGS: THAW_HOOKS] as for OP_CONFIGURE, in between:
                   * file systems thaw first, user processes last */
    OP_SHUTDOWN,  /* kill everything, sync, power off / exit */
    /* Volumes; the bytes both ways are those of wire/share.h, as DATA(CH_TUNNEL). Either ends with FR_CANCEL.
     * Before OP_CONFIGURE as well. */
    OP_SERVE,     /* keeper: T_CREDIT, [T_FLAGS: SHARE_RO] -> EV_STARTED; requests in, replies out */
    OP_SHARE,     /* vm, on its channel for volumes: T_PATH, T_NAME (the volume), T_CREDIT, [T_FLAGS: SHARE_*] -> EV_STARTED once it is mounted
                   * there, or was before and goes on; requests out, replies in */
    OP_MAX
};

enum agent_event {
    EV_STARTED = 1, /* T_PID, [T_OFFSET] */
    EV_EXIT,        /* T_EXIT_KIND, T_EXIT_CODE (exit status or signal number), [T_OFFSET total bytes produced] */
    EV_ENTRIES,     /* T_ENTRY* */
    EV_WATCH,       /* T_NAME (relative), T_TYPE: 'c' create 'w' write 'd' remove 'r' rename(old name) 'a' attributes 'o' overflow: rescan, T_SEQ, [T_ENTRY] */
    EV_LOST,        /* T_SIZE bytes of output were overwritten before they could be sent; only in detached-then-attached use */
};

enum exit_kind { EXIT_CODE = 1, EXIT_SIGNAL, EXIT_OOM, EXIT_TIMEOUT };

enum { CFG_NO_CLOCK = 1 /* container: the clock is the host's */, CFG_PRIME = 2 /* template build: leave machine-id empty, run no hooks */,
       CFG_TAKEOVER = 4 /* the daemon restarted, the guest did not: run no hooks */,
       CFG_RESUME = 8 /* the sandbox itself, from disk: entropy, clock, generation; what is frozen stays so until OP_THAW, nothing is written */,
       CFG_REHEARSAL = 16 /* a pool member: all that a claim will do, but no hooks */ };
enum { THAW_HOOKS = 1 };
enum { SIG_ONE = 1, SIG_TREE = 2 /* with SIGKILL: the group and everything that came out of it */ };
enum { FILE_PARENTS = 1, FILE_RECURSIVE = 2, FILE_APPEND = 4, FILE_EXCL = 8, FILE_OWN = 16 /* an existing file becomes the user's too */ };
enum { WATCH_RECURSIVE = 1, WATCH_ENTRY = 2 };
enum { STAT_REMOTE = 1 /* on a network or FUSE file system, links followed */ };
enum { SYNC_DROP = 1 };
enum { SHARE_RO = 1, SHARE_THAW = 2 /* it is made of a snapshot and will not go back: its root may be written to for the place */ };
enum { FREEZE_USER_ONLY = 1 /* memory is saved with the disk: file systems are synced, not frozen */,
       FREEZE_QUICK = 2 /* not even synced: memory stays where it is (standby) */ };

enum tag {
    T_MESSAGE = 1, T_ENTROPY, T_WALL_NS, T_HOSTNAME, T_MACHINE_ID, T_GENERATION, T_SANDBOX, T_ENV, T_USER, T_CWD, T_FILE, T_FLAGS,
    T_KERNEL, T_VERSION, T_MEM_BYTES, T_ARG, T_STDIN, T_COLS, T_ROWS, T_TAG, T_TIMEOUT_MS, T_CREDIT, T_PID, T_OFFSET, T_PROC,
    T_EXIT_KIND, T_EXIT_CODE, T_SIGNAL, T_BYTES, T_PATH, T_NAME, T_TYPE, T_SIZE, T_MODE, T_UID, T_GID, T_OWNER, T_GROUP,
    T_MTIME_NS, T_TARGET, T_TARGET_TYPE, T_XATTR, T_ENTRY, T_DEPTH, T_DEST, T_SEQ, T_CPU_NS, T_CPUS, T_MEM_USED, T_MEM_CACHE,
    T_DISK_BYTES, T_DISK_USED, T_NPROC, T_PORT, T_TARGET_MODE, T_ATIME_NS, T_CTIME_NS, T_WHY,
};
