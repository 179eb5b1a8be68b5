/* All files of a request: several at once, with progress. */
#ifndef ESPL_FETCH_FETCH_LOOP_H
#define ESPL_FETCH_FETCH_LOOP_H

#include "core/error.h"
#include "datasets/fetch/fetch_request.h"

/** Brings every file of the request into the cache and reports each. token: "" = none. stop: set by
 * a signal handler, also when nobody listens any more. The first failure that stays ends all; what
 * was downloaded stays for the next time. Errors: those of the files, CANCELLED. */
enum espl_status espl_fetch_run(const struct espl_fetch_request *request, const char *token,
                                const volatile int *stop, struct espl_error *err);

#endif
