# Around runsc, beneath the filters it gives its own halves: what none of them
# ever needs. Default allow, because runsc makes namespaces and mounts before it
# confines itself; the walls here are the box's own user namespace, the empty
# root, no_new_privs. Where guest code runs, runsc's filter catches every call
# before an error of ours could be seen.
default allow
errno EPERM bpf perf_event_open keyctl add_key request_key kexec_load kexec_file_load init_module finit_module delete_module
errno EPERM swapon swapoff reboot open_by_handle_at name_to_handle_at acct quotactl settimeofday clock_settime adjtimex clock_adjtime
errno EPERM vhangup lookup_dcookie syslog iopl ioperm userfaultfd fanotify_init uselib sysfs mknod mknodat
errno EPERM fsopen fsconfig fsmount fspick
errno ENOSYS io_uring_setup io_uring_enter io_uring_register
# gVisor hands sockets of its guest on to the host's kernel: the families of a container, and no frames. vsock is in no namespace.
allow socket if a0 & 0xffffffff == 1
errno EAFNOSUPPORT socket if a1 & 0xf == 10
allow socket if a0 & 0xffffffff == 2
allow socket if a0 & 0xffffffff == 10
allow socket if a0 & 0xffffffff == 16
errno EAFNOSUPPORT socket
