/* The forward pass of image models against HF transformers, and its steps against each other. */
#include "core/fs.h"
#include "eval/vision.h"
#include "unit/golden_data.h"
#include "unit/model_fixture.h"
#include "unit/vision_fixture.h"

#include "support/cmocka_all.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { IMAGES = 3 };

static const char *const names[] = {"vit-hf", "deit-distilled-hf", "swin-hf"};
enum { NAMES = sizeof names / sizeof names[0] };

struct world {
    char dir[ESPL_PATH_MAX];
    struct vision_fixture fixture;
    struct espl_backend *backend;
    struct espl_vision *vision;
    const struct espl_model_config *config;
    uint8_t *pixels;
    struct espl_error err;
};

static void open_world(struct world *world, const char *name, const char *backend)
{
    char folder[GOLDEN_PATH];
    char path[ESPL_PATH_MAX];
    char member[64];
    memset(world, 0, sizeof *world);
    fixture_make_dir(world->dir);
    (void)snprintf(member, sizeof member, "models/%s", name);
    golden_path(member, folder);
    vision_fixture_open(folder, fixture_join(path, world->dir, "model.h5"), &world->fixture, NULL);
    world->config = espl_model_get_config(world->fixture.model);
    world->pixels = vision_fixture_pixels(world->config, IMAGES);
    assert_int_equal(espl_backend_open(backend, 2, &world->backend, NULL), ESPL_OK);
    assert_int_equal(espl_vision_create(world->fixture.model, world->backend, IMAGES, NULL,
                                        &world->vision, &world->err),
                     ESPL_OK);
}

static void close_world(struct world *world)
{
    espl_vision_destroy(world->vision);
    espl_backend_close(world->backend);
    vision_fixture_close(&world->fixture);
    free(world->pixels);
    (void)espl_fs_remove_tree(world->dir, NULL);
}

static float *run_logits(struct world *world, const struct espl_vision_replacement *replace)
{
    float *logits = calloc(IMAGES * espl_vision_classes(world->vision), sizeof *logits);
    assert_non_null(logits);
    assert_int_equal(
        espl_vision_logits(world->vision, replace, world->pixels, IMAGES, logits, &world->err),
        ESPL_OK);
    return logits;
}

static void assert_near(const float *found, const double *expected, size_t count, double tolerance)
{
    for (size_t i = 0; i < count; i++) {
        if (!(fabs((double)found[i] - expected[i]) <= tolerance)) {
            fail_msg("logit %zu is %.7g, expected %.7g", i, (double)found[i], expected[i]);
        }
    }
}

/* PyTorch's float32 logits are printed with six digits behind the point. */
static void check_golden(const char *backend)
{
    for (size_t n = 0; n < NAMES; n++) {
        struct world world;
        char folder[GOLDEN_PATH];
        char member[64];
        open_world(&world, names[n], backend);
        (void)snprintf(member, sizeof member, "models/%s", names[n]);
        golden_path(member, folder);
        const size_t classes = espl_vision_classes(world.vision);
        double *expected = vision_fixture_logits(folder, "logits", IMAGES, classes);
        float *logits = run_logits(&world, NULL);
        assert_near(logits, expected, IMAGES * classes, 2e-5);
        free(logits);
        free(expected);
        close_world(&world);
    }
}

static void test_logits__cpu(void **state)
{
    (void)state;
    check_golden("cpu");
}

static void test_logits__ref(void **state)
{
    (void)state;
    check_golden("ref");
}

/* Restarting in the middle from kept activations gives the same logits as the whole pass. */
static void test_blocks__restart(void **state)
{
    (void)state;
    for (size_t n = 0; n < NAMES; n++) {
        struct world world;
        open_world(&world, names[n], "cpu");
        const uint64_t blocks = espl_vision_blocks(world.vision);
        const size_t classes = espl_vision_classes(world.vision);
        float *whole = run_logits(&world, NULL);
        float *kept[16] = {NULL};
        float *logits = calloc(IMAGES * classes, sizeof *logits);
        assert_non_null(logits);
        for (uint64_t b = 0; b <= blocks; b++) {
            kept[b] = calloc(IMAGES * espl_vision_values(world.vision, b), sizeof(float));
            assert_non_null(kept[b]);
            assert_true(b == 0 || espl_vision_values(world.vision, b) <=
                                      espl_vision_values(world.vision, b - 1));
        }
        assert_int_equal(espl_vision_embed(world.vision, world.pixels, IMAGES, kept[0], &world.err),
                         ESPL_OK);
        for (uint64_t b = 0; b < blocks; b++) {
            assert_int_equal(espl_vision_block(world.vision, b, NULL, IMAGES, kept[b], kept[b + 1],
                                               NULL, NULL, &world.err),
                             ESPL_OK);
        }
        for (uint64_t start = 0; start <= blocks; start++) { /* in place from here on */
            for (uint64_t b = start; b < blocks; b++) {
                assert_int_equal(espl_vision_block(world.vision, b, NULL, IMAGES, kept[start],
                                                   kept[start], NULL, NULL, &world.err),
                                 ESPL_OK);
            }
            assert_int_equal(
                espl_vision_head(world.vision, IMAGES, kept[start], logits, &world.err), ESPL_OK);
            assert_memory_equal(logits, whole, IMAGES * classes * sizeof *logits);
        }
        for (uint64_t b = 0; b <= blocks; b++) {
            free(kept[b]);
        }
        free(logits);
        free(whole);
        close_world(&world);
    }
}

/* A replacement counts for its call alone, and equals a model whose weight is that matrix. */
static void test_replacement(void **state)
{
    (void)state;
    const enum espl_role roles[] = {ESPL_ROLE_QKV, ESPL_ROLE_O, ESPL_ROLE_FC1, ESPL_ROLE_FC2,
                                    ESPL_ROLE_MERGE};
    struct world world;
    open_world(&world, "swin-hf", "cpu");
    const size_t count = IMAGES * espl_vision_classes(world.vision);
    float *plain = run_logits(&world, NULL);
    for (size_t r = 0; r < sizeof roles / sizeof roles[0]; r++) {
        struct espl_vision_replacement replace[16] = {0};
        struct espl_matrix_shape shape;
        const float *own = espl_vision_weight(world.vision, 2, roles[r], &shape);
        assert_non_null(own);
        float *copy = malloc(shape.rows * shape.cols * sizeof *copy);
        assert_non_null(copy);
        memcpy(copy, own, shape.rows * shape.cols * sizeof *copy);
        replace[2].weight[roles[r]] = copy;
        float *same = run_logits(&world, replace);
        assert_memory_equal(same, plain, count * sizeof *same);
        copy[0] += 3.0F;
        float *other = run_logits(&world, replace);
        assert_memory_not_equal(other, plain, count * sizeof *other);
        free(copy);
        free(same);
        free(other);
    }
    float *again = run_logits(&world, NULL);
    assert_memory_equal(again, plain, count * sizeof *again);
    struct espl_matrix_shape shape;
    assert_null(espl_vision_weight(world.vision, 1, ESPL_ROLE_MERGE, &shape));
    assert_null(espl_vision_weight(world.vision, 99, ESPL_ROLE_QKV, &shape));
    free(again);
    free(plain);
    close_world(&world);
}

struct seen {
    size_t calls;
    enum espl_role roles[8];
    size_t rows[8], in[8];
    bool spoil; /* set the inputs of fc2 to zero */
};

static enum espl_status look(void *user, uint64_t block, enum espl_role role, float *x, size_t rows,
                             size_t in, struct espl_error *err)
{
    struct seen *seen = user;
    (void)err;
    assert_int_equal(block, 2);
    assert_true(seen->calls < 8);
    seen->roles[seen->calls] = role;
    seen->rows[seen->calls] = rows;
    seen->in[seen->calls++] = in;
    if (seen->spoil && role == ESPL_ROLE_FC2) {
        memset(x, 0, rows * in * sizeof *x);
    }
    return ESPL_OK;
}

/* Block 2 of the Swin merges 16 x 16 cells of 8 channels to 8 x 8 of 16. */
static void test_inputs(void **state)
{
    (void)state;
    const enum espl_role roles[] = {ESPL_ROLE_MERGE, ESPL_ROLE_QKV, ESPL_ROLE_O, ESPL_ROLE_FC1,
                                    ESPL_ROLE_FC2};
    const size_t in[] = {32, 16, 16, 16, 40};
    struct world world;
    struct seen seen = {.spoil = false};
    open_world(&world, "swin-hf", "cpu");
    const size_t values = espl_vision_values(world.vision, 2);
    float *input = calloc(IMAGES * values, sizeof *input);
    float *output[2];
    assert_non_null(input);
    assert_int_equal(values, 16 * 16 * 8);
    assert_int_equal(espl_vision_values(world.vision, 3), 8 * 8 * 16);
    assert_int_equal(espl_vision_embed(world.vision, world.pixels, IMAGES, input, &world.err),
                     ESPL_OK);
    for (int i = 0; i < 2; i++) {
        output[i] = calloc(IMAGES * values, sizeof(float));
        assert_non_null(output[i]);
        seen = (struct seen){.spoil = i == 1};
        assert_int_equal(espl_vision_block(world.vision, 2, NULL, IMAGES, input, output[i], look,
                                           &seen, &world.err),
                         ESPL_OK);
        assert_int_equal(seen.calls, 5);
        for (size_t c = 0; c < 5; c++) {
            assert_int_equal(seen.roles[c], roles[c]);
            assert_int_equal(seen.rows[c], IMAGES * 64);
            assert_int_equal(seen.in[c], in[c]);
        }
    }
    /* What the second observer did to fc2's input is in the result. */
    assert_memory_not_equal(output[0], output[1], IMAGES * 64 * 16 * sizeof(float));
    free(output[0]);
    free(output[1]);
    free(input);
    close_world(&world);
}

/* The scale that the configuration names changes nothing; another one does. */
static void test_scale(void **state)
{
    (void)state;
    struct world world;
    struct espl_vision *scaled = NULL;
    struct espl_pixel_scale scale = {{0}, {0}};
    open_world(&world, "vit-hf", "cpu");
    for (size_t c = 0; c < 3; c++) {
        scale.mean[c] = 0.5;
        scale.std[c] = 0.5;
    }
    float *plain = run_logits(&world, NULL);
    float *logits = calloc(IMAGES * 7, sizeof *logits);
    assert_non_null(logits);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(espl_vision_create(world.fixture.model, world.backend, IMAGES, &scale,
                                            &scaled, &world.err),
                         ESPL_OK);
        assert_int_equal(espl_vision_logits(scaled, NULL, world.pixels, IMAGES, logits, &world.err),
                         ESPL_OK);
        if (i == 0) { /* what the configuration says */
            assert_memory_equal(logits, plain, IMAGES * 7 * sizeof *logits);
        } else {
            assert_memory_not_equal(logits, plain, IMAGES * 7 * sizeof *logits);
        }
        espl_vision_destroy(scaled);
        scale.std[1] = 0.25;
    }
    free(logits);
    free(plain);
    close_world(&world);
}

/* Counted by hand for the tiny ViT: 9 patches of 48 values, 10 tokens of 24, ffn 40, 7 classes. */
static void test_flop(void **state)
{
    (void)state;
    struct world world;
    open_world(&world, "vit-hf", "cpu");
    const double block = 2.0 * 10 * (24 * 72 + 24 * 24 + 2 * 24 * 40) + 4.0 * 10 * 10 * 24;
    assert_float_equal(espl_vision_block_flop(world.config, 1), block, 0.5);
    assert_float_equal(espl_vision_flop(world.config), 2 * block + 2.0 * 9 * 48 * 24 + 2.0 * 7 * 24,
                       0.5);
    assert_true(espl_vision_bytes(world.config, 4) >
                espl_arch_parameters(world.config) * sizeof(float));
    close_world(&world);
}

static void test_refusals(void **state)
{
    (void)state;
    struct world world;
    struct espl_vision *vision = NULL;
    struct espl_model *model = NULL;
    struct espl_artifact *artifact = NULL;
    char path[ESPL_PATH_MAX];
    float value[8] = {0};
    open_world(&world, "vit-hf", "cpu");
    assert_int_equal(espl_vision_embed(world.vision, world.pixels, IMAGES + 1, value, &world.err),
                     ESPL_E_INTERNAL);
    assert_int_equal(
        espl_vision_block(world.vision, 2, NULL, 1, value, value, NULL, NULL, &world.err),
        ESPL_E_INTERNAL);

    const struct espl_model_config llama = fixture_config("llama");
    fixture_write_artifact(world.dir, "l", &llama, ESPL_DTYPE_F32, path, NULL);
    assert_int_equal(espl_artifact_open(path, &artifact, NULL), ESPL_OK);
    assert_int_equal(espl_model_open(artifact, NULL, &model, NULL), ESPL_OK);
    assert_int_equal(espl_vision_create(model, world.backend, 1, NULL, &vision, &world.err),
                     ESPL_E_KIND);
    assert_string_equal(world.err.message, "architecture 'llama' is not an image model");
    espl_model_close(model);
    espl_artifact_close(artifact);
    close_world(&world);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_logits__cpu),
        cmocka_unit_test(test_logits__ref),
        cmocka_unit_test(test_blocks__restart),
        cmocka_unit_test(test_replacement),
        cmocka_unit_test(test_inputs),
        cmocka_unit_test(test_scale),
        cmocka_unit_test(test_flop),
        cmocka_unit_test(test_refusals),
    };
    return cmocka_run_group_tests_name("vision", tests, NULL, NULL);
}
