/* What a VM needs before the agent can serve: kernel file systems, modules,
 * the root disk, the channel. Runs once as /init of the initramfs. */
#pragma once
#include "base/err.h"
/* The agent's channel; *ret_volumes: the one for volumes, -1 if the machine has none. */
int init_vm(int *ret_volumes, struct err *e);

/* The parts that can be tested without a VM. */
int init_load_modules(const char *list_path, const char *prefix, struct err *e);
int init_find_port(const char *class_dir, const char *dev_dir, const char *name, char *out, unsigned long cap);
const char *init_cmdline_value(const char *cmdline, const char *key, char *out, unsigned long cap);
