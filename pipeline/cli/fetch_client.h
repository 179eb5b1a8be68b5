/* The other end of espalier-fetch: starts it with a request, hears its events. */
#ifndef ESPL_CLI_FETCH_CLIENT_H
#define ESPL_CLI_FETCH_CLIENT_H

#include "cli/command.h"
#include "core/error.h"

#include <jansson.h>
#include <stdint.h>

struct espl_fetch_progress;

/** Runs espalier-fetch until it ends. request: object with the settings and "files" of
 * datasets/fetch/fetch_request.h, borrowed. results: an object that gets "name": event for each
 * file that is there now. Progress and retries go to `progress`. Errors: those of the fetch;
 * MACHINE when the program is not there, STAGE when it died. */
enum espl_status espl_fetch_client_run(const struct espl_cli *cli, const json_t *request,
                                       json_t *results, struct espl_fetch_progress *progress,
                                       struct espl_error *err);

#endif
