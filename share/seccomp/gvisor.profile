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
