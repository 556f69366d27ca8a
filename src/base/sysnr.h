/* System calls of x86-64 by name and number. */
#pragma once
int sysnr(const char *name);      /* -1: unknown */
const char *sysnr_name(int nr);   /* NULL: unknown */
