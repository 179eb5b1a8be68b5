/* Finds every tensor of a model in a checkpoint, and says what is missing, unexpected or of another
 * shape, with the likely cause. */
#ifndef ESPL_STAGES_IMPORT_MATCH_H
#define ESPL_STAGES_IMPORT_MATCH_H

#include "stages/import/import_checkpoint.h"

/** What does not fit. Indices into the specs, or into the tensors of the files. */
struct espl_import_problems {
    size_t *missing, missing_count; /* specs */
    size_t *wrong, wrong_count;     /* specs whose source has another shape */
    size_t *extra, extra_count;     /* tensors of the files */
};

/** Fills checkpoint->sources and spare_head; config, specs and files must be set. KIND with all
 * that does not fit. */
enum espl_status espl_import_match(struct espl_import_checkpoint *checkpoint,
                                   struct espl_error *err);
/** Fills *err from problems (at least one). Returns KIND. */
enum espl_status espl_import_explain(const struct espl_import_checkpoint *checkpoint,
                                     const struct espl_import_problems *problems,
                                     struct espl_error *err);
/** "4096 x 1024" */
void espl_import_print_shape(unsigned rank, const uint64_t *shape, char out[96]);

#endif
