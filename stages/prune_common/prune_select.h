/* Parameters that every pruning stage has, and whether they fit the layers they select. */
#ifndef ESPL_STAGES_PRUNE_SELECT_H
#define ESPL_STAGES_PRUNE_SELECT_H

#include "stages/prune_common/group_align.h"
#include "stages/prune_common/layer_select.h"

enum espl_prune_tail { ESPL_PRUNE_TAIL_REFUSE, ESPL_PRUNE_TAIL_DENSE };
/** YAML words of enum espl_prune_tail; ends with NULL. */
extern const char *const espl_prune_tail_choices[];

struct espl_prune_params {
    double sparsity;         /* fraction to remove, without a pattern */
    struct espl_nm pattern;  /* keep n of m; {0, 0} = unstructured */
    int64_t vector;          /* with a pattern: rows that share it; 0 and 1 = none */
    int tail;                /* enum espl_prune_tail */
    struct espl_align align; /* all 0 in stages without these parameters */
    struct espl_layer_choice layers;
};

/** Selects layers. *selection: freed with espl_prune_selection_free(), also after a failure.
 * Errors: as espl_layers_select(), and JOB (blamed on the parameter) for a sparsity that
 * contradicts the pattern, columns that the pattern does not divide or a shape that groups do not
 * cover (naming layers and sizes), or `vector`, `align` and `fill` that contradict the rest. */
enum espl_status espl_prune_select(const struct espl_model_config *config,
                                   const struct espl_prune_params *params,
                                   struct espl_prune_selection *selection, struct espl_error *err);

/** How the pattern of these parameters chooses. */
struct espl_nm_choice espl_prune_nm_choice(const struct espl_prune_params *params);
/** Rows that must not be torn apart: pieces of a matrix start at multiples of this. */
size_t espl_prune_row_span(const struct espl_prune_params *params);

#endif
