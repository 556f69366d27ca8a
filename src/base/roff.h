/* Text for man pages. */
#pragma once
#include "base/buf.h"
void roff_text(struct buf *out, const char *s); /* escapes \, -, ', leading dots; ends no line */
