/* Stored measurements as a file: JSON of schema espalier.spmm-tuning/1, choices of several devices.
 * docs/formats/bench.md describes it. A file may come from anywhere: everything is checked. */
#ifndef ESPL_STAGES_TUNING_FILE_H
#define ESPL_STAGES_TUNING_FILE_H

#include "kernels/bench/spmm_tuning.h"

enum { ESPL_TUNING_MAX_BYTES = 16 << 20, ESPL_TUNING_MAX_CHOICES = 65536 };

/** Adds to *tuning what the text (len bytes) holds for `device`; there may be nothing. All of the
 *  text is checked. Errors: CORRUPT naming what is wrong, VERSION for a newer schema, NOMEM. */
enum espl_status espl_tuning_parse(const char *text, size_t len, const char *device,
                                   struct espl_spmm_tuning *tuning, struct espl_error *err);
/** The same from a file. Errors: also NOTFOUND, IO; CORRUPT for more than ESPL_TUNING_MAX_BYTES. */
enum espl_status espl_tuning_read(const char *path, const char *device,
                                  struct espl_spmm_tuning *tuning, struct espl_error *err);
/** Writes the choices of `device`, whole or not at all; what the file (if there is one) holds for
 *  other devices stays. Errors: as espl_tuning_read(), but a missing file is none. */
enum espl_status espl_tuning_write(const char *path, const char *device,
                                   const struct espl_spmm_tuning *tuning, struct espl_error *err);

#endif
