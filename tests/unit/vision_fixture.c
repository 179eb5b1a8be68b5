#include "unit/vision_fixture.h"

#include "core/fs.h"
#include "stages/import/import_transfer.h"

#include "support/cmocka_all.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

static void must(enum espl_status status, const struct espl_error *err)
{
    if (status != ESPL_OK) {
        fail_msg("%s (%s)", err->message, err->context);
    }
}

void vision_fixture_open(const char *folder, const char *path, struct vision_fixture *fixture,
                         char content[ESPL_SHA256_HEX])
{
    struct espl_import_checkpoint *checkpoint = NULL;
    struct espl_import_choice choice;
    struct espl_artifact *output = NULL;
    struct espl_error err = {0};
    const struct espl_import_hooks hooks = {.user = NULL};
    memset(fixture, 0, sizeof *fixture);
    must(espl_import_checkpoint_open(folder, NULL, &checkpoint, &err), &err);
    must(espl_import_choose(checkpoint, ESPL_IMPORT_DTYPE_KEEP, ESPL_IMPORT_STORAGE_COPY, &choice,
                            &err),
         &err);
    must(espl_artifact_create(path, "model.dense/1", &output, &err), &err);
    must(espl_import_transfer(checkpoint, &choice, output, &hooks, &err), &err);
    must(espl_artifact_finish(&output, content, &err), &err);
    espl_import_checkpoint_close(checkpoint);
    must(espl_artifact_open(path, &fixture->artifact, &err), &err);
    must(espl_model_open(fixture->artifact, NULL, &fixture->model, &err), &err);
}

void vision_fixture_close(struct vision_fixture *fixture)
{
    espl_model_close(fixture->model);
    espl_artifact_close(fixture->artifact);
    memset(fixture, 0, sizeof *fixture);
}

uint8_t vision_fixture_pixel(size_t i)
{
    return (uint8_t)((i * 7 + i * i % 251 + 13 * (i / 5)) % 256);
}

uint8_t *vision_fixture_pixels(const struct espl_model_config *config, size_t images)
{
    const struct espl_vision_config *vision = &config->vision;
    const size_t count =
        images * (size_t)(vision->image_size * vision->image_size * vision->channels);
    uint8_t *pixels = malloc(count);
    assert_non_null(pixels);
    for (size_t i = 0; i < count; i++) {
        pixels[i] = vision_fixture_pixel(i);
    }
    return pixels;
}

double *vision_fixture_logits(const char *folder, const char *member, size_t images, size_t classes)
{
    char path[ESPL_PATH_MAX];
    assert_int_equal(espl_fs_join(path, folder, "golden.json", NULL), ESPL_OK);
    json_t *golden = json_load_file(path, 0, NULL);
    const json_t *rows = json_object_get(golden, member);
    double *logits = calloc(images * classes, sizeof *logits);
    assert_non_null(logits);
    assert_int_equal(json_array_size(rows), images);
    for (size_t i = 0; i < images * classes; i++) {
        const json_t *row = json_array_get(rows, i / classes);
        assert_int_equal(json_array_size(row), classes);
        logits[i] = json_real_value(json_array_get(row, i % classes));
    }
    json_decref(golden);
    return logits;
}
