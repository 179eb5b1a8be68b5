/* Reference image models and their pictures: checks of logits and of the quality under uniform N:8
 * masks. Shared by the quick and the slow golden test. */
#ifndef ESPL_TESTS_VISION_GOLDEN_H
#define ESPL_TESTS_VISION_GOLDEN_H

#include "unit/vision_fixture.h"

enum { VISION_GOLDEN_LEVELS = 8 };

/** A reference model and pictures in memory. */
struct vision_golden {
    char dir[4096];   /* private folder */
    char model[4096]; /* folder of the checkpoint */
    struct vision_fixture fixture;
    struct espl_backend *backend;
    struct espl_image_set set;
    uint8_t *pixels;
    int32_t *labels;
};

/** Where the pictures of a model are: "deit-fmnist-..." reads Fashion-MNIST, the others CIFAR-10.
 *  all: the whole test set, else every twentieth of CIFAR-10, the first 500 of Fashion-MNIST. False
 *  when model or pictures are not on this machine. */
bool vision_golden_open(const char *name, bool all, struct vision_golden *golden);
void vision_golden_close(struct vision_golden *golden);
/** golden.json's logits of the first four pictures of the test set, within 2e-3. first4: their
 *  bytes. */
void vision_golden_check_logits(struct vision_golden *golden);
/** Quality with every linear of every block masked to `level` of 8. base: dense logits are kept
 *  there at level 8 and used for KL below; NULL = no KL. */
struct espl_vision_tally vision_golden_measure(struct vision_golden *golden, unsigned level,
                                               float *base);

#endif
