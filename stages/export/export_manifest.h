/* The manifest of an export: espalier-export.json in the folder, and the description of the
 * artifact. It tells an export from a folder that is somebody's own, and whether it is whole. */
#ifndef ESPL_STAGES_EXPORT_MANIFEST_H
#define ESPL_STAGES_EXPORT_MANIFEST_H

#include "artifact/store.h"
#include "core/error.h"

#include <jansson.h>
#include <stdbool.h>

#define ESPL_EXPORT_MANIFEST "espalier-export.json"

/** Lists all files of `folder` with sizes and hashes under "files" of `manifest`. */
enum espl_status espl_export_manifest_fill(const char *folder, json_t *manifest,
                                           struct espl_error *err);
/** Does the folder hold every file of the manifest, with its size and hash? stale: the reason why
 * not. store, rehash: as espl_store_file_hash(). */
enum espl_status espl_export_manifest_check(const struct espl_store *store, bool rehash,
                                            const char *folder, const json_t *manifest, bool *valid,
                                            char stale[160], struct espl_error *err);
/** May an export be written to this path? Yes when there is nothing, an empty folder, or an export
 * with no other files in it; else KIND, blamed on param:folder. */
enum espl_status espl_export_check_target(const char *folder, struct espl_error *err);
/** Is there an export in this folder? */
bool espl_export_is_there(const char *folder);

#endif
