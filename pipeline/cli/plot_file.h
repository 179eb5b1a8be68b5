/* Files of the plots that the bench commands write. */
#ifndef ESPL_CLI_PLOT_FILE_H
#define ESPL_CLI_PLOT_FILE_H

#include "core/buf.h"
#include "core/error.h"

/** Writes the content to `file` in `folder`, whole or not at all, and empties it in any case.
 * Errors: those of the buffer, IO, NOSPACE. */
enum espl_status espl_plot_write(const char *folder, const char *file, struct espl_buf *content,
                                 struct espl_error *err);

#endif
