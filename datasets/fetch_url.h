/* Rules about addresses that files are fetched from: what the registry may name, and what
 * espalier-fetch opens. */
#ifndef ESPL_DATASETS_FETCH_URL_H
#define ESPL_DATASETS_FETCH_URL_H

#include "core/error.h"

#include <stdbool.h>

/** May this address be opened? https, or http to this machine itself; no user name or password in
 * it; no control characters. Errors: USAGE. */
enum espl_status espl_fetch_check_url(const char *url, struct espl_error *err);
/** The address without query and fragment, which may hold signatures: for messages. */
const char *espl_fetch_shown_url(const char *url, char out[512]);
/** Same scheme, host and port? */
bool espl_fetch_same_origin(const char *a, const char *b);

#endif
