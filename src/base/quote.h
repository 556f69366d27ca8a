/* Words for sh. */
#pragma once
#include "base/buf.h"

void shell_quote(struct buf *b, const char *s); /* one word, whatever is in it */
