/* Models of checkpoint folders for tests of what reads models: an artifact with the tensors as they
 * are in the folder, made without the import stage, opened as any other model. */
#ifndef ESPL_TESTS_CHECKPOINT_MODEL_H
#define ESPL_TESTS_CHECKPOINT_MODEL_H

#include "model/model.h"

/** weights_dir: folder of the safetensors files; config_dir: folder of config.json. At most 8
 * models are open at a time. */
enum espl_status checkpoint_model_open(const char *weights_dir, const char *config_dir,
                                       struct espl_model **out, struct espl_error *err);
/** As above, with a NaN as the first value of the weight of (layer, role); float32 checkpoints. */
enum espl_status checkpoint_model_open_damaged(const char *weights_dir, const char *config_dir,
                                               int64_t layer, enum espl_role role,
                                               struct espl_model **out, struct espl_error *err);
void checkpoint_model_close(struct espl_model *model);

#endif
