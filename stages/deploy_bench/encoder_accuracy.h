/* A packed image model on the device against the same on the CPU, picture by picture. */
#ifndef ESPL_STAGES_ENCODER_ACCURACY_H
#define ESPL_STAGES_ENCODER_ACCURACY_H

#include "engine/stage.h"
#include "model/model.h"
#include "stages/deploy_bench/encoder_record.h"

/** Runs the first `asked` pictures (0 = all) of the stage's input `images` on both. threads: of the
 *  CPU. Errors: KIND (pictures that do not fit), NUMERIC, CANCELLED, those of running. */
enum espl_status espl_encoder_judge(struct espl_stage_ctx *ctx, struct espl_model *model,
                                    uint64_t asked, unsigned threads,
                                    struct espl_encoder_accuracy *accuracy, struct espl_error *err);

#endif
