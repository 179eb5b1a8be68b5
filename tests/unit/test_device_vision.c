/* Whole image models on the CUDA device against the CPU: ViT, distilled DeiT, Swin; packed N:M with
 * and without shared patterns, and in FP16. Buffers are poisoned, bits repeat, parts can be timed.
 * Skipped without a CUDA device. */
#include "kernels/cuda_device.h"

#include "quant_fixture.h"
#include "search_stage_fixture.h"

#include "eval/device_vision.h"
#include "eval/vision_internal.h"
#include "stages/nm_pack/pack_linear.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

extern const struct espl_stage espl_stage_magnitude_prune;
extern const struct espl_stage espl_stage_nm_pack;

enum { IMAGES = 5, MOST_PARAMS = 1024 };

/* A model in the results folder, packed or as it is. */
struct world {
    struct prune_fixture fixture;
    struct espl_arena *arena;
    struct espl_artifact *artifact;
    struct espl_model *model;
    const struct espl_model_config *config;
    uint8_t *pixels;
    size_t logits;
};

static struct espl_model_config config_of(const char *name)
{
    struct espl_model_config config;
    struct espl_error err;
    char path[ESPL_PATH_MAX];
    (void)snprintf(path, sizeof path, ESPL_SOURCE_DIR "/tests/data/models/%s/config.json", name);
    json_t *hf = json_load_file(path, 0, NULL);
    assert_non_null(hf);
    cuda_check(espl_model_config_from_hf(hf, &config, &err), &err);
    json_decref(hf);
    return config;
}

/* 'a' -> pruned 'c' -> packed 'd'. */
static void prune_and_pack(struct world *world, uint32_t n, int64_t vector)
{
    union {
        struct espl_prune_params common; /* what the parameters begin with */
        char bytes[MOST_PARAMS];
    } prune;
    union {
        struct espl_pack_params pack;
        char bytes[MOST_PARAMS];
    } pack;
    struct espl_error err;
    assert_true(espl_stage_magnitude_prune.params_size <= sizeof prune);
    search_default_params(&espl_stage_magnitude_prune, world->arena, &prune);
    prune.common.pattern = (struct espl_nm){n, 8};
    prune.common.vector = vector;
    prune.common.tail = ESPL_PRUNE_TAIL_DENSE;
    cuda_check(prune_run(&world->fixture, &espl_stage_magnitude_prune, &prune, 'c', 'a', 0, NULL,
                         NULL, &err),
               &err);
    search_default_params(&espl_stage_nm_pack, world->arena, &pack);
    cuda_check(
        prune_run(&world->fixture, &espl_stage_nm_pack, &pack, 'd', 'c', 0, NULL, NULL, &err),
        &err);
}

/* n = 0: not packed. name: of a configuration under tests/data/models, whose weights are random;
 * NULL = the trained DeiT of the samples. */
static void open_world(struct world *world, const char *name, uint32_t n, int64_t vector)
{
    struct espl_rng rng = espl_rng_stream(11, "pictures", 0);
    memset(world, 0, sizeof *world);
    world->arena = espl_arena_create((size_t)1 << 20);
    prune_fixture_open(&world->fixture);
    if (name != NULL) {
        const struct espl_model_config config = config_of(name);
        prune_make_model(&world->fixture, 'a', &config, ESPL_DTYPE_F32, NULL);
    } else {
        prune_import(&world->fixture, 'a', ESPL_SOURCE_DIR "/datasets/samples/deit-fmnist-dense");
    }
    if (n > 0) {
        prune_and_pack(world, n, vector);
    }
    prune_open(&world->fixture, n > 0 ? 'd' : 'a', &world->artifact, &world->model);
    world->config = espl_model_get_config(world->model);
    const struct espl_vision_config *vision = &world->config->vision;
    const size_t count =
        IMAGES * (size_t)(vision->image_size * vision->image_size * vision->channels);
    world->logits = IMAGES * (size_t)world->config->vocab;
    world->pixels = malloc(count);
    assert_non_null(world->pixels);
    for (size_t i = 0; i < count; i++) {
        world->pixels[i] = (uint8_t)espl_rng_below(&rng, 256);
    }
}

static void close_world(struct world *world)
{
    espl_model_close(world->model);
    espl_artifact_close(world->artifact);
    prune_fixture_close(&world->fixture);
    espl_arena_destroy(world->arena);
    free(world->pixels);
}

static float *cpu_logits(struct world *world)
{
    struct espl_error err;
    struct espl_backend *cpu = NULL;
    struct espl_vision *vision = NULL;
    float *logits = calloc(world->logits, sizeof *logits);
    assert_non_null(logits);
    cuda_check(espl_backend_open("cpu", 1, &cpu, &err), &err);
    cuda_check(espl_vision_create(world->model, cpu, IMAGES, NULL, &vision, &err), &err);
    cuda_check(espl_vision_logits(vision, NULL, world->pixels, IMAGES, logits, &err), &err);
    espl_vision_destroy(vision);
    espl_backend_close(cpu);
    return logits;
}

/* Twice the N, as a table may ask for: the same integers. */
static unsigned twice(void *user, uint64_t block, enum espl_role role,
                      const struct espl_nm_layout *layout)
{
    (void)user;
    (void)block;
    (void)role;
    return 2 * layout->n < layout->m ? 2 * layout->n : layout->m;
}

/* Linears with inputs in sixteens and outputs in eights are there in all models but vit-hf. */
static bool suits_library(const struct world *world)
{
    bool suits = false;
    for (uint64_t b = 0; b < world->config->layers; b++) {
        struct espl_vision_place place;
        espl_vision_get_place(world->config, b, &place);
        suits = suits || place.width % 16 == 0;
    }
    return suits;
}

static float *device_logits(struct world *world, int poison, espl_device_vision_level_fn level,
                            enum espl_device_vision_by by)
{
    struct espl_error err;
    struct espl_device_vision *vision = NULL;
    float *logits = calloc(world->logits, sizeof *logits);
    float *again = calloc(world->logits, sizeof *again);
    assert_true(logits != NULL && again != NULL);
    cuda_check(
        espl_device_vision_create(world->model, IMAGES + 1, NULL, level, NULL, by, &vision, &err),
        &err);
    const size_t library = espl_device_vision_by_library(vision);
    assert_true(by == ESPL_DEVICE_VISION_FASTEST ||
                (library > 0) == (by == ESPL_DEVICE_VISION_LIBRARY && suits_library(world)));
    for (int round = 0; round < 3; round++) {
        cuda_check(espl_device_vision_fill(vision, poison + round, &err), &err);
        cuda_check(espl_device_vision_logits(vision, world->pixels, IMAGES,
                                             round == 0 ? logits : again, &err),
                   &err);
        assert_true(round == 0 || memcmp(logits, again, world->logits * sizeof *logits) == 0);
    }
    assert_true(espl_device_vision_weight_bytes(vision) > 0);
    espl_device_vision_destroy(vision);
    free(again);
    return logits;
}

/* Inputs of attention and of GELU's linear are FP16 on the device, and an input that lies between
 * two codes may take either: of the largest logit. */
static void check_model(const char *name, uint32_t n, int64_t vector, double tolerance)
{
    struct world world;
    open_world(&world, name, n, vector);
    float *expected = cpu_logits(&world);
    float *found = device_logits(&world, 0xFF, NULL, ESPL_DEVICE_VISION_OWN);
    const double difference = quant_difference(expected, found, world.logits);
    print_message("%s %u:8 V=%d: %.2g of the largest logit\n", name != NULL ? name : "deit-fmnist",
                  (unsigned)n, (int)vector, difference);
    assert_true(difference < tolerance);
    if (n > 0) {
        for (int by = ESPL_DEVICE_VISION_OWN; by <= ESPL_DEVICE_VISION_LIBRARY; by++) {
            float *other = device_logits(&world, 0x7B, twice, (enum espl_device_vision_by)by);
            assert_memory_equal(found, other, world.logits * sizeof *found);
            free(other);
        }
    }
    free(expected);
    free(found);
    close_world(&world);
}

static const char *const names[] = {"vit-hf", "deit-distilled-hf", "swin-hf", NULL};
enum { NAMES = sizeof names / sizeof names[0] };

static void test_logits__fp16(void **state)
{
    (void)state;
    if (!cuda_has_device()) {
        skip();
    }
    for (size_t i = 0; i < NAMES; i++) {
        check_model(names[i], 0, 0, 4e-3);
    }
}

static void test_logits__packed(void **state)
{
    static const struct {
        uint32_t n;
        int64_t vector;
    } patterns[] = {{2, 16}, {3, 8}, {4, 1}, {8, 1}};
    (void)state;
    if (!cuda_has_device()) {
        skip();
    }
    for (size_t i = 0; i < NAMES; i++) {
        for (size_t p = 0; p < sizeof patterns / sizeof patterns[0]; p++) {
            check_model(names[i], patterns[p].n, patterns[p].vector, 3e-2);
        }
    }
}

static void test_time__parts(void **state)
{
    static const struct espl_device_vision_random kinds[] = {
        {.m = 8, .vector = 16, .by = ESPL_DEVICE_VISION_FASTEST},
        {.m = 8, .vector = 64, .by = ESPL_DEVICE_VISION_LIBRARY},
        {.m = 8, .vector = 1, .halves = true}};
    struct espl_error err;
    (void)state;
    if (!cuda_has_device()) {
        skip();
    }
    for (size_t i = 0; i < 3; i++) {
        const struct espl_model_config config = config_of(names[i]);
        struct espl_device_vision *vision = NULL;
        struct espl_cuda_time all;
        struct espl_cuda_time part;
        float logits[2 * 16] = {0.0F};
        uint8_t *pixels = calloc(2, (size_t)(config.vision.image_size * config.vision.image_size *
                                             config.vision.channels));
        assert_non_null(pixels);
        cuda_check(espl_device_vision_create_random(&config, &kinds[i], 2, &vision, &err), &err);
        for (unsigned n = 1; !kinds[i].halves && n <= 8; n++) {
            cuda_check(espl_device_vision_set(vision, 0, ESPL_ROLE_FC1, n, &err), &err);
            cuda_check(espl_device_vision_logits(vision, pixels, 2, logits, &err), &err);
            assert_true(isfinite(logits[0]) && config.vocab <= 16);
        }
        cuda_check(espl_device_vision_time(vision, ESPL_DEVICE_VISION_ALL, 2, 3, &all, &err), &err);
        assert_true(all.median > 0.0);
        for (unsigned p = 1; p < ESPL_DEVICE_VISION_ALL; p *= 2) {
            cuda_check(espl_device_vision_time(vision, p, 2, 3, &part, &err), &err);
            assert_true(part.median > 0.0 && part.median < all.median);
        }
        assert_int_equal(espl_device_vision_set(vision, 99, ESPL_ROLE_FC1, 8, &err),
                         ESPL_E_INTERNAL);
        espl_device_vision_destroy(vision);
        free(pixels);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_logits__fp16),
        cmocka_unit_test(test_logits__packed),
        cmocka_unit_test(test_time__parts),
    };
    cuda_filter_tests();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
