# A program that reads one descriptor and writes one tree. No sockets, no
# other processes, no signals to anybody, nothing of the kernel's set-up.
default errno EPERM
allow read write readv writev pread64 pwrite64 open openat openat2 creat close close_range stat fstat lstat newfstatat statx
allow access faccessat faccessat2 lseek dup dup2 dup3 fcntl getdents getdents64 getcwd chdir fchdir rename renameat renameat2
allow mkdir mkdirat rmdir link linkat unlink unlinkat symlink symlinkat readlink readlinkat chmod fchmod fchmodat
allow chown fchown lchown fchownat umask utime utimes utimensat futimesat truncate ftruncate fallocate fsync fdatasync syncfs
allow statfs fstatfs fadvise64 copy_file_range sendfile splice setxattr lsetxattr fsetxattr getxattr lgetxattr fgetxattr
allow listxattr llistxattr flistxattr removexattr lremovexattr fremovexattr mknodat mknod
maybe allow fchmodat2
allow poll ppoll select pselect6 pipe pipe2 brk mmap munmap mremap mprotect madvise exit exit_group futex rseq set_tid_address set_robust_list
allow arch_prctl prctl prlimit64 getrlimit getrandom getpid gettid getuid geteuid getgid getegid uname sysinfo getrusage
allow clock_gettime clock_getres clock_nanosleep nanosleep gettimeofday time rt_sigaction rt_sigprocmask rt_sigreturn sigaltstack
allow tgkill sched_yield sched_getaffinity getcpu ioctl execve execveat restart_syscall wait4 waitid membarrier
errno ENOSYS clone3
