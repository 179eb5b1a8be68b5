/* The calibration windows of a stage: what its tokens input says of itself at plan time, and the
 * ids when it runs. */
#ifndef ESPL_STAGES_CALIBRATION_WINDOWS_H
#define ESPL_STAGES_CALIBRATION_WINDOWS_H

#include "engine/stage.h"
#include "model/config.h"

/** What a tokens description says; members it leaves out are 0. */
struct espl_calibration_info {
    uint64_t windows; /* 0 = one long text */
    uint64_t tokens;  /* in a window */
    uint64_t vocab;   /* entries of the tokenizer; 0 = not said */
};

/** Calibration windows of a tokens artifact. */
struct espl_calibration_windows {
    int32_t *ids; /* (count, tokens), owned */
    uint64_t count;
    size_t tokens;
};

/** From a tokens description; NULL gives zeros. */
struct espl_calibration_info espl_calibration_info_from_json(const json_t *description);
/** Do these windows fit the model? Errors, blamed on input tokens: JOB (no windows, shorter than 2
 * tokens), KIND (an image model; longer than the model's learned positions, vocabulary larger than
 * the model's). */
enum espl_status espl_calibration_check(const struct espl_model_config *config,
                                        const struct espl_calibration_info *info,
                                        struct espl_error *err);
/** At plan time: *info of input "tokens" (zeros while nothing is known of it), checked against the
 * model; windows longer than what the model was trained on get a warning. Errors: as
 * espl_calibration_check(). */
enum espl_status espl_calibration_plan(struct espl_plan_ctx *ctx,
                                       const struct espl_model_config *config,
                                       struct espl_calibration_info *info, struct espl_error *err);
/** Reads input "tokens" and checks it against the model. Freed with
 *  espl_calibration_windows_free(), also after an error. Errors: as espl_calibration_check(), KIND,
 *  NOMEM, IO. */
enum espl_status espl_calibration_windows_read(struct espl_stage_ctx *ctx,
                                               const struct espl_model_config *config,
                                               struct espl_calibration_windows *windows,
                                               struct espl_error *err);
void espl_calibration_windows_free(struct espl_calibration_windows *windows);
/** The sizes of windows that were read. */
struct espl_calibration_info
espl_calibration_info_of(const struct espl_calibration_windows *windows);

#endif
