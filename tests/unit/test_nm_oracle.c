/* Scores of configurations: equal to a plain run of a model with the same masks, and not changed by
 * what is kept between calls, the order of configurations or the batch they come in. */
#include "support/cmocka_all.h"

#include "core/rng.h"
#include "search_stage_fixture.h"
#include "stages/nm_supernet/nm_oracle.h"
#include "stages/nm_supernet/nm_rank.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { LAYERS = 8, CONFIGS = 12, PICTURES = 24 };

struct bed {
    struct prune_fixture fixture;
    struct espl_artifact *model_file, *pictures_file;
    struct espl_model *model;
    struct espl_backend *backend;
    struct espl_supernet supernet;
    struct espl_nm_pictures pictures;
};

static void check(enum espl_status status, const struct espl_error *err)
{
    if (status != ESPL_OK) {
        fail_msg("%s", err->message);
    }
}

static void open_bed(struct bed *bed)
{
    static const char *const everything = "*";
    const struct espl_list targets = {1, &everything};
    const struct espl_list nothing = {0, NULL};
    struct espl_error err;
    memset(bed, 0, sizeof *bed);
    search_fixture_open_stage(&bed->fixture);
    prune_open(&bed->fixture, 'a', &bed->model_file, &bed->model);
    check(espl_store_open_artifact(&bed->fixture.store, prune_key(&bed->fixture, 'b'), NULL,
                                   &bed->pictures_file, &err),
          &err);
    check(espl_backend_open("cpu", 1, &bed->backend, &err), &err);
    bed->supernet.facts = (struct espl_supernet_facts){.m = 8, .vector = 1};
    check(espl_nm_layers_select(espl_model_get_config(bed->model), 8, &targets, &nothing,
                                &bed->supernet.layers, &err),
          &err);
    assert_int_equal(bed->supernet.layers.count, LAYERS);
    bed->supernet.ranks = calloc(LAYERS, sizeof *bed->supernet.ranks);
    for (size_t i = 0; i < LAYERS; i++) {
        const struct espl_tensor_spec *spec = &bed->supernet.layers.items[i].spec;
        const struct espl_tensor_spec *own =
            espl_model_find(bed->model, spec->layer, spec->role, false);
        const struct espl_matrix_shape shape = {(size_t)spec->shape[0], (size_t)spec->shape[1]};
        float *weights = malloc(shape.rows * shape.cols * sizeof *weights);
        bed->supernet.ranks[i] = malloc(shape.rows * shape.cols);
        check(espl_model_read_f32(bed->model, own, 0, shape.rows, weights, &err), &err);
        espl_nm_rank(&shape, 8, 1, weights, bed->supernet.ranks[i]);
        free(weights);
    }
    check(espl_nm_pictures_open(bed->pictures_file, espl_model_get_config(bed->model), PICTURES, 3,
                                &bed->pictures, &err),
          &err);
}

static void close_bed(struct bed *bed)
{
    espl_nm_pictures_free(&bed->pictures);
    espl_supernet_free(&bed->supernet);
    espl_backend_close(bed->backend);
    espl_model_close(bed->model);
    espl_artifact_close(bed->model_file);
    espl_artifact_close(bed->pictures_file);
    prune_fixture_close(&bed->fixture);
}

static struct espl_nm_oracle *make_oracle(struct bed *bed, int metric, uint64_t activation_bytes)
{
    const struct espl_nm_oracle_options options = {.fidelities = 1,
                                                   .pictures = {PICTURES},
                                                   .metric = {metric},
                                                   .activation_bytes = activation_bytes};
    struct espl_nm_oracle *oracle = NULL;
    struct espl_error err;
    check(espl_nm_oracle_create(bed->model, bed->backend, &bed->supernet, &bed->pictures, &options,
                                &oracle, &err),
          &err);
    return oracle;
}

/* Random configurations that share beginnings now and then. */
static void make_configurations(uint8_t n[CONFIGS * LAYERS])
{
    struct espl_rng rng = espl_rng_stream(8, "configurations", 0);
    for (size_t i = 0; i < CONFIGS; i++) {
        const size_t shared = i % 3 == 0 ? 0 : (size_t)espl_rng_below(&rng, LAYERS);
        for (size_t layer = 0; layer < LAYERS; layer++) {
            n[i * LAYERS + layer] = layer < shared ? n[(i - 1) * LAYERS + layer]
                                                   : (uint8_t)(1 + espl_rng_below(&rng, 8));
        }
    }
}

/* Cross entropy of the model with masked weights, block by block as eval/vision.h says, on the
 * pictures of the search in their order. */
static double plain_loss(struct bed *bed, const uint8_t *n)
{
    struct espl_vision *vision = NULL;
    struct espl_vision_replacement replacement[2] = {{{NULL}}, {{NULL}}};
    float *masked[LAYERS];
    struct espl_error err;
    const size_t bytes = espl_image_set_bytes(&bed->pictures.set);
    uint8_t *pixels = malloc(PICTURES * bytes);
    int32_t labels[PICTURES];
    double loss = 0.0;
    check(espl_vision_create(bed->model, bed->backend, PICTURES, &bed->pictures.set.scale, &vision,
                             &err),
          &err);
    for (size_t i = 0; i < LAYERS; i++) {
        const struct espl_tensor_spec *spec = &bed->supernet.layers.items[i].spec;
        struct espl_matrix_shape shape;
        const float *own = espl_vision_weight(vision, (uint64_t)spec->layer, spec->role, &shape);
        masked[i] = malloc(shape.rows * shape.cols * sizeof(float));
        for (size_t at = 0; at < shape.rows * shape.cols; at++) {
            masked[i][at] = bed->supernet.ranks[i][at] < n[i] ? own[at] : 0.0f;
        }
        replacement[spec->layer].weight[spec->role] = masked[i];
    }
    const size_t classes = espl_vision_classes(vision);
    float *logits = malloc(PICTURES * classes * sizeof *logits);
    for (uint64_t i = 0; i < PICTURES; i++) {
        check(espl_image_set_read(bed->pictures_file, &bed->pictures.set, bed->pictures.order[i], 1,
                                  pixels + i * bytes, labels + i, &err),
              &err);
    }
    check(espl_vision_logits(vision, replacement, pixels, PICTURES, logits, &err), &err);
    for (size_t i = 0; i < PICTURES; i++) {
        const float *row = logits + i * classes;
        double sum = 0.0;
        for (size_t c = 0; c < classes; c++) {
            sum += exp((double)row[c]);
        }
        loss += log(sum) - (double)row[labels[i]];
    }
    for (size_t i = 0; i < LAYERS; i++) {
        free(masked[i]);
    }
    free(logits);
    free(pixels);
    espl_vision_destroy(vision);
    return loss / PICTURES;
}

static void test_score__is_that_of_the_masked_model(void **state)
{
    (void)state;
    struct bed bed;
    uint8_t n[CONFIGS * LAYERS];
    double scores[CONFIGS];
    struct espl_error err;
    open_bed(&bed);
    make_configurations(n);
    struct espl_nm_oracle *oracle = make_oracle(&bed, ESPL_NM_LOSS, (uint64_t)1 << 20);
    check(espl_nm_oracle_score(oracle, 0, 0, CONFIGS, n, scores, &err), &err);
    for (size_t i = 0; i < CONFIGS; i++) {
        /* float32 logits against a sum in double */
        assert_true(fabs(-scores[i] - plain_loss(&bed, n + i * LAYERS)) < 1e-6);
    }
    espl_nm_oracle_destroy(oracle);
    close_bed(&bed);
}

/* One by one without room to keep anything, backwards, or all at once: the same bits. */
static void test_score__does_not_depend_on_what_is_kept(void **state)
{
    (void)state;
    struct bed bed;
    uint8_t n[CONFIGS * LAYERS];
    double together[CONFIGS];
    struct espl_error err;
    open_bed(&bed);
    make_configurations(n);
    struct espl_nm_oracle *large = make_oracle(&bed, ESPL_NM_KL, (uint64_t)1 << 24);
    struct espl_nm_oracle *small = make_oracle(&bed, ESPL_NM_KL, 0);
    check(espl_nm_oracle_score(large, 0, 0, CONFIGS, n, together, &err), &err);
    for (size_t i = CONFIGS; i-- > 0;) {
        double alone = 0.0;
        check(espl_nm_oracle_score(small, 0, 0, 1, n + i * LAYERS, &alone, &err), &err);
        assert_true(alone == together[i]);
        assert_true(alone <= 1e-9);
    }
    const uint64_t whole = (uint64_t)CONFIGS * PICTURES * espl_nm_oracle_blocks(large);
    assert_true(espl_nm_oracle_get_work(large)->block_pictures < whole);
    /* Again: every beginning is there, only last blocks run. */
    const uint64_t before = espl_nm_oracle_get_work(large)->block_pictures;
    double again[CONFIGS];
    check(espl_nm_oracle_score(large, 0, 0, CONFIGS, n, again, &err), &err);
    assert_int_equal(espl_nm_oracle_get_work(large)->block_pictures - before, CONFIGS * PICTURES);
    assert_memory_equal(again, together, sizeof again);
    espl_nm_oracle_destroy(large);
    espl_nm_oracle_destroy(small);
    close_bed(&bed);
}

static void test_score__does_not_depend_on_threads(void **state)
{
    (void)state;
    struct bed bed;
    uint8_t n[CONFIGS * LAYERS];
    double scores[2][CONFIGS];
    struct espl_error err;
    open_bed(&bed);
    make_configurations(n);
    for (unsigned i = 0; i < 2; i++) {
        espl_backend_close(bed.backend);
        bed.backend = NULL;
        check(espl_backend_open("cpu", 1 + 2 * i, &bed.backend, &err), &err);
        struct espl_nm_oracle *oracle = make_oracle(&bed, ESPL_NM_KL, (uint64_t)1 << 20);
        check(espl_nm_oracle_score(oracle, 0, 0, CONFIGS, n, scores[i], &err), &err);
        espl_nm_oracle_destroy(oracle);
    }
    assert_memory_equal(scores[0], scores[1], sizeof scores[0]);
    close_bed(&bed);
}

static void test_score__dense_has_no_divergence(void **state)
{
    (void)state;
    struct bed bed;
    uint8_t n[LAYERS];
    double score = 1.0;
    struct espl_error err;
    open_bed(&bed);
    memset(n, 8, sizeof n);
    struct espl_nm_oracle *oracle = make_oracle(&bed, ESPL_NM_KL, 0);
    check(espl_nm_oracle_score(oracle, 0, 0, 1, n, &score, &err), &err);
    assert_true(fabs(score) < 1e-12);
    espl_nm_oracle_destroy(oracle);
    /* Rounded to INT8 the dense model is the teacher too; a sparse one is another than in float. */
    bed.supernet.facts.precision = ESPL_NM_INT8;
    oracle = make_oracle(&bed, ESPL_NM_LOSS, 0);
    memset(n, 2, sizeof n);
    check(espl_nm_oracle_score(oracle, 0, 0, 1, n, &score, &err), &err);
    const double plain = plain_loss(&bed, n);
    assert_true(fabs(-score - plain) > 1e-7 && fabs(-score - plain) < 0.05);
    espl_nm_oracle_destroy(oracle);
    close_bed(&bed);
}

/* Held-out pictures are exactly those that no epoch draws; an epoch's order is its own. */
static void test_pictures__held_out_ones_are_never_drawn(void **state)
{
    (void)state;
    struct bed bed;
    bool seen[SEARCH_PICTURES] = {false};
    open_bed(&bed);
    assert_int_equal(espl_nm_pictures_held_out(&bed.pictures), SEARCH_PICTURES - PICTURES);
    const size_t bytes = espl_image_set_bytes(&bed.pictures.set);
    uint8_t *pixels = malloc(PICTURES * bytes);
    int32_t labels[PICTURES];
    uint64_t first_order[PICTURES];
    struct espl_error err;
    for (uint64_t epoch = 0; epoch < 5; epoch++) {
        check(espl_nm_pictures_read(&bed.pictures, epoch, 0, PICTURES, pixels, labels, &err), &err);
        for (size_t i = 0; i < PICTURES; i++) {
            seen[bed.pictures.drawn[i]] = true;
        }
        if (epoch > 0) {
            assert_memory_not_equal(first_order, bed.pictures.drawn, sizeof first_order);
        }
        memcpy(first_order, bed.pictures.drawn, sizeof first_order);
    }
    for (uint64_t i = PICTURES; i < SEARCH_PICTURES; i++) {
        assert_false(seen[bed.pictures.order[i]]);
        seen[bed.pictures.order[i]] = true;
    }
    for (size_t i = 0; i < SEARCH_PICTURES; i++) {
        assert_true(seen[i]);
    }
    free(pixels);
    close_bed(&bed);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_score__is_that_of_the_masked_model),
        cmocka_unit_test(test_score__does_not_depend_on_what_is_kept),
        cmocka_unit_test(test_score__does_not_depend_on_threads),
        cmocka_unit_test(test_score__dense_has_no_divergence),
        cmocka_unit_test(test_pictures__held_out_ones_are_never_drawn),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
