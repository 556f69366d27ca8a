/* Why a box, and the sandbox that had it, ended. */
#pragma once
enum end_reason {
    END_NONE,
    END_KILLED,
    END_TIMEOUT,
    END_IDLE,
    END_OOM,
    END_GUEST_EXIT,
    END_HOST_FAULT,
    END_QUOTA,
    END_SHUTDOWN,
    END_LIFETIME,
    END_MAX
};
const char *end_name(enum end_reason r); /* "" for END_NONE */
enum end_reason end_parse(const char *s);
