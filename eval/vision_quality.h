/* How good an image classifier is on labelled pictures, and how far from another one. */
#ifndef ESPL_EVAL_VISION_QUALITY_H
#define ESPL_EVAL_VISION_QUALITY_H

#include "eval/vision.h"
#include "eval/vision_images.h"

/** Sums over pictures. Start from zeros. */
struct espl_vision_tally {
    uint64_t images;
    uint64_t top1; /* pictures whose label has the highest logit; of equal logits the lower class */
    uint64_t top5; /* ... is among the five highest */
    double loss;   /* sum of cross entropies, nats */
    double kl;     /* sum of KL(base || model), nats */
};

/** Adds `images` pictures. labels (images): NULL = none (top-1, top-5 and loss stay);
 *  base_logits: NULL = no KL. Images are added in order, in double: the sums do not depend on how
 *  they are grouped into calls. Errors: NUMERIC for a logit that is not finite, naming the picture
 *  by its place since the tally began. */
enum espl_status espl_vision_tally_add(struct espl_vision_tally *tally,
                                       struct espl_backend *backend, const float *logits,
                                       const float *base_logits, const int32_t *labels,
                                       size_t images, size_t classes, struct espl_error *err);

struct espl_vision_quality {
    struct espl_vision_tally model;
    struct espl_vision_tally base; /* of the base model; zeros without one */
    double seconds;
    double flop;                    /* base model included */
    struct espl_vision_times times; /* both models together */
};

/** Where pictures come from. read: pictures [first, first + count) and, when the set has labels,
 *  their labels, else labels is NULL. */
struct espl_vision_pictures {
    const struct espl_image_set *set;
    uint64_t count; /* to take, from the first on */
    enum espl_status (*read)(void *user, uint64_t first, uint64_t count, uint8_t *pixels,
                             int32_t *labels, struct espl_error *err);
    void *user;
};

/** done of total images; returns false to stop. */
typedef bool (*espl_image_progress_fn)(void *user, uint64_t done, uint64_t total);

/** Runs the pictures through the model and, when not NULL, the base model (same classes). Errors:
 *  KIND (pictures do not fit the base model), CANCELLED when progress said stop, NUMERIC. */
enum espl_status espl_vision_measure(struct espl_model *model, struct espl_model *base,
                                     struct espl_backend *backend,
                                     const struct espl_vision_pictures *pictures,
                                     espl_image_progress_fn progress, void *user,
                                     struct espl_vision_quality *out, struct espl_error *err);
/** The first `count` pictures of an open artifact. artifact, set: borrowed. */
struct espl_stored_pictures {
    struct espl_artifact *artifact;
    struct espl_image_set set;
};
struct espl_vision_pictures espl_stored_pictures(struct espl_stored_pictures *stored,
                                                 uint64_t count);
/** Host bytes that espl_vision_measure() takes. base: NULL allowed. */
uint64_t espl_vision_measure_bytes(const struct espl_model_config *config,
                                   const struct espl_model_config *base);

#endif
