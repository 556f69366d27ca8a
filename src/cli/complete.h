/* What a shell offers when the completion key is pressed. The scripts that
 * `hutch completion` prints are only glue: they call `hutch __complete -- WORDS`
 * with the words up to the cursor, and all that is known of verbs and options is
 * in the tables that parsing uses too. */
#pragma once
#include "base/buf.h"
#include "cli/cli.h"

/* words[n-1] is the one under the cursor, maybe "". A candidate is a line "word<TAB>help" (or "word"); the line ":files" asks the shell for file
 * names, ":nospace" for no blank after the word. Names of sandboxes, templates and so on are asked of a daemon that runs; none is started. */
void complete(struct cli *x, int n, char **words, struct buf *out);
