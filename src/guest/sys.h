/* The machine side of the agent: configuration after start or restore, freeze
 * and thaw, growing the disk, the end. */
#pragma once
#include "guest/agent.h"
#define HOOKS_DIR "/etc/hutch/post-restore.d" /* run in a clone before user code */
void sys_init(struct agent *a);
bool sys_oom_happened(struct agent *a); /* vm: the kernel killed something for memory since the last look */
void sys_end(struct agent *a);          /* kill everything; vm: power off and do not return */
void sys_power_off(void) __attribute__((noreturn));
void sys_console(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
int sys_thaw_fs(struct agent *a, struct err *e);
int sys_thaw_user(struct agent *a, struct err *e);
bool sys_write_file(const char *path, const char *text);
