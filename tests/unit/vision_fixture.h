/* Image models of checkpoint folders, read as the import stage reads them, and pictures for them.
 */
#ifndef ESPL_TESTS_VISION_FIXTURE_H
#define ESPL_TESTS_VISION_FIXTURE_H

#include "eval/vision_quality.h"

/** A model and the artifact that it borrows. */
struct vision_fixture {
    struct espl_artifact *artifact;
    struct espl_model *model;
};

/** Imports `folder` to `path` (of a new artifact) and opens it; fails the test on errors. content:
 *  hash of the artifact, NULL allowed. */
void vision_fixture_open(const char *folder, const char *path, struct vision_fixture *fixture,
                         char content[ESPL_SHA256_HEX]);
void vision_fixture_close(struct vision_fixture *fixture);
/** Byte `i` of the pictures that the logits in tests/data/models were computed for. */
uint8_t vision_fixture_pixel(size_t i);
/** `images` such pictures of the size that the model reads. malloc'ed. */
uint8_t *vision_fixture_pixels(const struct espl_model_config *config, size_t images);
/** The list "logits" of a folder's golden.json under `member`, row after row. malloc'ed. */
double *vision_fixture_logits(const char *folder, const char *member, size_t images,
                              size_t classes);

#endif
