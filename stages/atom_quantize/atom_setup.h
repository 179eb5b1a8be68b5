/* atom-quantize's parameters and what follows from them and from the inputs' headers alone: shared
 * by `plan` and `run`. */
#ifndef ESPL_STAGES_ATOM_SETUP_H
#define ESPL_STAGES_ATOM_SETUP_H

#include "engine/stage.h"
#include "model/quantised.h"
#include "stages/calibration/chains.h"
#include "stages/prune_common/layer_select.h"
#include "stages/quant_common/quantiser.h"

enum espl_atom_method { ESPL_ATOM_GPTQ, ESPL_ATOM_RTN };
enum espl_atom_scale { ESPL_ATOM_SCALE_AUTO, ESPL_ATOM_SCALE_HALF, ESPL_ATOM_SCALE_FULL };
enum espl_atom_reorder { ESPL_ATOM_REORDER_HESSIAN, ESPL_ATOM_REORDER_NONE };
/** YAML words of the enums, and of enum espl_removed_rule; end with NULL. */
extern const char *const espl_atom_method_choices[];
extern const char *const espl_atom_scale_choices[];
extern const char *const espl_atom_reorder_choices[];
extern const char *const espl_atom_removed_choices[];

struct espl_atom_params {
    int64_t weight_bits;
    int64_t activation_bits;  /* 16 = float */
    int64_t group_size;       /* -1 = auto, 0 = one scale a row */
    int64_t outlier_channels; /* -1 = auto */
    int64_t rows_per_scale;
    int64_t kv_bits; /* 16 = float */
    int method;      /* enum espl_atom_method */
    int scale;       /* enum espl_atom_scale */
    int reorder;     /* enum espl_atom_reorder */
    int removed;     /* enum espl_removed_rule */
    double weight_clip, activation_clip, kv_clip;
    double damping;
    double max_perplexity_ratio;
    struct espl_layer_choice layers;
};

/** What a run works on. */
struct espl_atom_setup {
    struct espl_prune_selection selection;
    struct espl_quant_scheme scheme;
};

/** Resolves layers, sizes and formulas. description: of the input model, borrowed.
 *  Errors: JOB, blamed on the parameter: bits that do not exist, a pattern that fits nothing,
 *  outlier channels or groups that do not fit (naming layers and legal sizes), a reorder of N:M
 *  windows. Free with espl_atom_setup_free() in any case. */
enum espl_status espl_atom_setup_make(const struct espl_model_config *config,
                                      const struct espl_atom_params *params,
                                      const json_t *description, struct espl_atom_setup *setup,
                                      struct espl_error *err);
void espl_atom_setup_free(struct espl_atom_setup *setup);

/** How a linear of this many columns is quantised. */
struct espl_quantiser espl_atom_quantiser(const struct espl_quant_scheme *scheme, size_t columns);
/** The "quantisation" object of the output; NULL when out of memory. New reference. */
json_t *espl_atom_describe(const struct espl_atom_params *params,
                           const struct espl_atom_setup *setup,
                           const struct espl_calibration_info *info);
/** Windows that chain 0 (the model as it was) and chain 1 (quantised) need. */
struct espl_chain_counts espl_atom_chain_counts(const struct espl_quant_scheme *scheme,
                                                uint64_t windows);
void espl_atom_estimate(const struct espl_model_config *config, const struct espl_atom_setup *setup,
                        const struct espl_calibration_info *info, struct espl_estimate *est);

#endif
