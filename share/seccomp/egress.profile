# hutch-egress after it has given up root: sockets of the internet families,
# pipes to splice through, log files in its own root. No processes, no other
# programs, no mounts, no ids.
default errno EPERM
allow read write readv writev pread64 pwrite64 close close_range fcntl lseek fstat newfstatat statx ftruncate
allow openat getdents64 rename renameat renameat2 unlinkat fsync fdatasync
allow epoll_create1 epoll_ctl epoll_wait epoll_pwait epoll_pwait2 eventfd2 timerfd_create timerfd_settime poll ppoll
allow socket if a0 == 2
allow socket if a0 == 10
allow socket if a0 == 16
allow connect bind accept4 getsockname getpeername getsockopt setsockopt sendto recvfrom sendmsg recvmsg shutdown
allow splice pipe2
allow brk mmap munmap mremap mprotect madvise futex membarrier rseq set_robust_list
allow getrandom clock_gettime clock_getres clock_nanosleep nanosleep gettimeofday time getpid gettid getuid geteuid getgid getegid
allow rt_sigaction rt_sigprocmask rt_sigreturn sigaltstack tgkill exit exit_group restart_syscall sched_yield sched_getaffinity sysinfo prlimit64 getrusage
kill execve execveat fork vfork clone clone3 ptrace process_vm_readv process_vm_writev mount setns unshare bpf
