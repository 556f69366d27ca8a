#include "base/notify.h"
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

static struct sockaddr_un to;
static socklen_t to_len;

void notify_keep(void)
{
    const char *path = getenv("NOTIFY_SOCKET");
    size_t n = path ? strlen(path) : 0;
    to_len = 0;
    if (n > 1 && n < sizeof to.sun_path && (*path == '/' || *path == '@')) {
        to.sun_family = AF_UNIX;
        memcpy(to.sun_path, path, n + 1);
        if (*path == '@')
            to.sun_path[0] = 0; /* abstract */
        to_len = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + n);
    }
    (void)unsetenv("NOTIFY_SOCKET");
}

void notify_send(const char *state)
{
    int fd = to_len ? socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0) : -1;
    if (fd < 0)
        return;
    (void)sendto(fd, state, strlen(state), MSG_NOSIGNAL | MSG_DONTWAIT,
                 (const struct sockaddr *)&to, to_len);
    (void)close(fd);
}
