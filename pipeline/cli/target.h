/* What a user names on the command line of inspect and diff: an artifact (file, key prefix,
 * JOB:STAGE) or a run. */
#ifndef ESPL_CLI_TARGET_H
#define ESPL_CLI_TARGET_H

#include "artifact/store.h"
#include "cli/command.h"
#include "core/fs.h"
#include "engine/run_record.h"

#include <jansson.h>

enum espl_target_type { ESPL_TARGET_ARTIFACT, ESPL_TARGET_RUN };

struct espl_target {
    enum espl_target_type type;
    char path[ESPL_PATH_MAX];     /* ARTIFACT: the file, links resolved */
    char run_id[ESPL_RUN_ID_MAX]; /* RUN */
};

/** Finds the artifact that `text` names: the path of a file, JOB:STAGE or JOB:STAGE.PORT (JOB: a
 * job name or a job file), or the first six or more digits of a key. Errors: NOTFOUND with the
 * three forms as hint, KIND for a prefix of several keys. */
enum espl_status espl_target_artifact(const struct espl_cli *cli, const struct espl_store *store,
                                      const char *text, struct espl_target *out,
                                      struct espl_error *err);
/** As above, or a run as espl_cli_find_run() takes it. Artifacts come first. */
enum espl_status espl_target_any(struct espl_cli *cli, const struct espl_store *store,
                                 const char *text, struct espl_target *out, struct espl_error *err);

/** JSON object or array out of a provenance text. *out: NULL when the artifact has none. New
 *  reference. Errors: CORRUPT when it is not JSON. */
struct espl_artifact;
enum espl_status espl_target_provenance(struct espl_artifact *artifact, const char *name,
                                        json_t **out, struct espl_error *err);

#endif
