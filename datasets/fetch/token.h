/* The hub's token. It is sent to the hub and appears nowhere else. */
#ifndef ESPL_FETCH_TOKEN_H
#define ESPL_FETCH_TOKEN_H

#include "core/error.h"

enum { ESPL_TOKEN_TEXT = 4096 };

/** From `file` when not NULL, else $ESPALIER_HUB_TOKEN, $HF_TOKEN, or the file that
 * $ESPALIER_HUB_TOKEN_FILE names; "" when there is none. Errors: USAGE when it is no token (blanks
 * or control characters inside), those of reading. Never quotes it. */
enum espl_status espl_fetch_read_token(const char *file, char out[ESPL_TOKEN_TEXT],
                                       struct espl_error *err);

#endif
