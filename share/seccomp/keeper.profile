# The process that serves the files of one volume. Its root is the volume. It
# answers one socket it was born with: no new sockets, no other processes, no
# signals to anybody, no programs, nothing of the kernel's set-up.
default errno EPERM
allow read write readv writev pread64 pwrite64 preadv pwritev open openat openat2 creat close stat fstat lstat newfstatat statx
allow access faccessat faccessat2 lseek dup dup3 fcntl getdents getdents64 getcwd chdir fchdir rename renameat renameat2
allow mkdir mkdirat rmdir link linkat unlink unlinkat symlink symlinkat readlink readlinkat chmod fchmod fchmodat
allow chown fchown lchown fchownat umask utimensat truncate ftruncate fallocate fsync fdatasync syncfs statfs fstatfs
allow setxattr lsetxattr fsetxattr getxattr lgetxattr fgetxattr listxattr llistxattr flistxattr removexattr lremovexattr fremovexattr
allow mknod mknodat
maybe allow fchmodat2
allow poll ppoll epoll_create1 epoll_ctl epoll_wait epoll_pwait signalfd4 brk mmap munmap mremap mprotect madvise
allow exit exit_group futex rseq set_tid_address set_robust_list arch_prctl prctl prlimit64 getrlimit setrlimit getrandom
allow getpid gettid getuid geteuid getgid getegid clock_gettime clock_nanosleep nanosleep wait4 waitid
allow rt_sigaction rt_sigprocmask rt_sigreturn restart_syscall execveat
errno ENOSYS clone3
