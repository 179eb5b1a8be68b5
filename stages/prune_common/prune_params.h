/* Rows of parameter tables that several stages share: everything but the offset. Use as
 * {ESPL_PARAM_SPARSITY, .offset = offsetof(struct my_params, common.sparsity)}. */
#ifndef ESPL_STAGES_PRUNE_PARAMS_H
#define ESPL_STAGES_PRUNE_PARAMS_H

#include "engine/param.h"
#include "stages/prune_common/prune_select.h"

/* clang-format off */

/* struct espl_prune_params */
#define ESPL_PARAM_SPARSITY                                                                        \
    .name = "sparsity",                                                                            \
    .help = "fraction of the weights to remove when no pattern is given",                          \
    .unit = "", .type = ESPL_PARAM_REAL, .default_text = "0.5", .min = 0.0, .max = 0.999999

#define ESPL_PARAM_PATTERN                                                                         \
    .name = "pattern",                                                                             \
    .help = "N:M, keeps N of every M consecutive input columns; none = unstructured",              \
    .unit = "", .type = ESPL_PARAM_NM, .flags = ESPL_PARAM_NULLABLE_NM, .default_text = "none"

#define ESPL_PARAM_VECTOR                                                                          \
    .name = "vector",                                                                              \
    .help = "with a pattern: neighbouring output channels that share it, judged by the sum of "    \
            "their scores; 1 = every channel has its own",                                         \
    .unit = "channels", .type = ESPL_PARAM_INT, .default_text = "1", .min = 1.0, .max = 1024.0

#define ESPL_PARAM_TAIL                                                                            \
    .name = "tail",                                                                                \
    .help = "columns that M does not divide: refuse them, or keep the last ones dense",            \
    .unit = "", .type = ESPL_PARAM_ENUM, .default_text = "refuse",                                 \
    .choices = espl_prune_tail_choices

/* struct espl_align of struct espl_prune_params */
#define ESPL_PARAM_ALIGN                                                                           \
    .name = "align",                                                                               \
    .help = "weights that are judged by their summed score and go together, rows and columns of a "\
            "group, as in {rows: 2, cols: 1}; none = each by itself",                              \
    .unit = "", .type = ESPL_PARAM_GRID, .default_text = "none"

#define ESPL_PARAM_ALIGN_FORM                                                                      \
    .name = "align_form",                                                                          \
    .help = "a group is the weights that share a bit of a union mask with these areas, or a block "\
            "of neighbours",                                                                       \
    .unit = "", .type = ESPL_PARAM_ENUM, .default_text = "areas",                                  \
    .choices = espl_align_form_choices

#define ESPL_PARAM_FILL                                                                            \
    .name = "fill",                                                                                \
    .help = "union = weights go one by one, but those of a group that keeps any are kept: a union "\
            "mask stores them anyway",                                                             \
    .unit = "", .type = ESPL_PARAM_ENUM, .default_text = "none",                                   \
    .choices = espl_align_fill_choices

/* struct espl_layer_choice; verb: "prune", rest: "dense" */
#define ESPL_PARAM_TARGETS(verb)                                                                   \
    .name = "targets", .help = "patterns over module names of block linears to " verb,             \
    .unit = "", .type = ESPL_PARAM_STRING, .flags = ESPL_PARAM_LIST, .default_text = "[\"*\"]"

#define ESPL_PARAM_IGNORE(rest)                                                                    \
    .name = "ignore", .help = "patterns over module names to leave " rest,                         \
    .unit = "", .type = ESPL_PARAM_STRING, .flags = ESPL_PARAM_LIST, .default_text = "[]"

#define ESPL_PARAM_FIRST_LAYER(verb)                                                               \
    .name = "first_layer", .help = "first block to " verb ", counted from 0",                      \
    .unit = "", .type = ESPL_PARAM_INT, .default_text = "0", .min = 0.0, .max = 100000.0

#define ESPL_PARAM_LAST_LAYER(verb)                                                                \
    .name = "last_layer", .help = "last block to " verb "; -1 = the model's last",                 \
    .unit = "", .type = ESPL_PARAM_INT, .default_text = "-1", .min = -1.0, .max = 100000.0

/* double, for espl_inverse_factor_create() */
#define ESPL_PARAM_DAMPING                                                                         \
    .name = "damping",                                                                             \
    .help = "share of the mean diagonal that is added to the Hessian's diagonal",                  \
    .unit = "", .type = ESPL_PARAM_REAL, .default_text = "0.01", .min = 1e-6, .max = 10.0

/* double, for espl_chains_check() */
#define ESPL_PARAM_MAX_PERPLEXITY_RATIO                                                            \
    .name = "max_perplexity_ratio",                                                                \
    .help = "stops the run when perplexity after over before on 8 calibration windows is above "   \
            "this; 0 = never",                                                                     \
    .unit = "", .type = ESPL_PARAM_REAL, .default_text = "100", .min = 0.0, .max = 1e12

/* clang-format on */

#endif
