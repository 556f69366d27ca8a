#include "base/cleanup.h"
#include "guest/proc.h"
#include <errno.h>
#include <fcntl.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <termios.h>

#ifndef TIOCGPTPEER
#define TIOCGPTPEER _IO('T', 0x41)
#endif

int pty_resize(int master, unsigned cols, unsigned rows)
{
    struct winsize w = {.ws_col = (unsigned short)cols, .ws_row = (unsigned short)rows};
    return ioctl(master, TIOCSWINSZ, &w);
}

int pty_open(unsigned cols, unsigned rows, uint32_t uid, int *ret_slave, struct err *e)
{
    int unlock = 0;
    auto_fd m = open("/dev/ptmx", O_RDWR | O_NOCTTY | O_CLOEXEC | O_NONBLOCK);
    if (m < 0)
        return err_sys(e, errno, "cannot open a terminal");
    if (ioctl(m, TIOCSPTLCK, &unlock) || pty_resize(m, cols, rows))
        return err_sys(e, errno, "cannot set up a terminal");
    auto_fd s = ioctl(m, TIOCGPTPEER, O_RDWR | O_NOCTTY | O_CLOEXEC);
    if (s < 0)
        return err_sys(e, errno, "cannot open a terminal");
    (void)!fchown(s, uid, 5 /* tty */); /* as login does; without it the user could not reopen /dev/tty by name */
    (void)fchmod(s, 0620);
    *ret_slave = take_fd(&s);
    return take_fd(&m);
}
