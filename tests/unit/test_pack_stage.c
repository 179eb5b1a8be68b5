/* nm-pack on small models: the packed model holds the INT8 rounding of the masked one, a language
 * model runs to the bit as with plain INT8 codes, an image model as the simulation of a search
 * says; rows share patterns only when they are the same; figures; resume. */
#include "support/cmocka_all.h"

#include "quant_fixture.h"
#include "search_stage_fixture.h"

#include "core/buf.h"
#include "espalier/nm_pack.h"
#include "eval/vision.h"
#include "stages/nm_pack/pack_linear.h"
#include "stages/nm_supernet/nm_int8.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

extern const struct espl_stage espl_stage_nm_pack;

static const char *const everything = "*";
enum { TOKENS = 16, IMAGES = 3 };

static struct espl_pack_params pack_params(int vector)
{
    return (struct espl_pack_params){.vector = vector,
                                     .verify = true,
                                     .layers = {.targets = {1, &everything}, .last_layer = -1}};
}

static int vector_choice(const char *word)
{
    int i = 0;
    while (strcmp(espl_pack_vector_choices[i], word) != 0) {
        i++;
    }
    return i;
}

/* 'a' with n of m kept, as `key`. */
static void prune_as(struct prune_fixture *fixture, uint32_t n, uint32_t m, int64_t vector,
                     char key)
{
    struct espl_wanda_params wanda = quant_wanda_params();
    wanda.common.pattern = (struct espl_nm){n, m};
    wanda.common.vector = vector;
    wanda.max_perplexity_ratio = 0.0;
    quant_run(fixture, &espl_stage_wanda_prune, &wanda, key, 'a', NULL);
}

static void prune_nm(struct prune_fixture *fixture, uint32_t n, uint32_t m, int64_t vector)
{
    prune_as(fixture, n, m, vector, 'c');
}

/* ---- what is in it ---- */

/* Every linear of 'd' is that of 'c' rounded by the simulation of a search; all else is as it was.
 */
static void check_rounded(struct prune_fixture *fixture)
{
    struct espl_artifact *artifacts[2] = {NULL, NULL};
    struct espl_model *models[2] = {NULL, NULL};
    struct espl_error err;
    prune_open(fixture, 'c', &artifacts[0], &models[0]);
    prune_open(fixture, 'd', &artifacts[1], &models[1]);
    assert_true(espl_model_is_encoded(models[1]));
    for (size_t i = 0; i < espl_model_tensor_count(models[0]); i++) {
        const struct espl_tensor_spec *spec = espl_model_tensor(models[0], i);
        const size_t rows = (size_t)spec->shape[0];
        const size_t cols = (size_t)(spec->rank == 2 ? spec->shape[1] : 1);
        float *before = malloc(rows * cols * sizeof *before);
        float *after = malloc(rows * cols * sizeof *after);
        assert_true(before != NULL && after != NULL);
        assert_int_equal(espl_model_read_f32(models[0], spec, 0, rows, before, &err), ESPL_OK);
        assert_int_equal(
            espl_model_read_f32(models[1], espl_model_tensor(models[1], i), 0, rows, after, &err),
            ESPL_OK);
        const bool linear = espl_role_is_block_linear(spec->role) && !spec->is_bias;
        assert_int_equal(espl_model_is_quantised(models[1], espl_model_tensor(models[1], i)),
                         linear);
        if (linear) {
            espl_nm_round_int8(before, rows, cols);
        }
        for (size_t k = 0; k < rows * cols; k++) { /* as numbers: -0 becomes code 0 */
            assert_true(before[k] == after[k]);
        }
        free(before);
        free(after);
    }
    for (size_t m = 0; m < 2; m++) {
        espl_model_close(models[m]);
        espl_artifact_close(artifacts[m]);
    }
}

static void test_pack__holds_the_rounded_weights(void **state)
{
    (void)state;
    static const struct {
        uint32_t n, m;
        int64_t vector;
    } cases[] = {{3, 8, 1}, {2, 4, 1}, {1, 8, 8}};
    const struct espl_model_config configs[] = {prune_llama_config(), prune_opt_config()};
    for (size_t i = 0; i < 3; i++) {
        struct prune_fixture fixture;
        const struct espl_pack_params params = pack_params(0);
        prune_open_case(&fixture, &configs[i % 2], ESPL_DTYPE_F32, NULL);
        prune_nm(&fixture, cases[i].n, cases[i].m, cases[i].vector);
        quant_run(&fixture, &espl_stage_nm_pack, &params, 'd', 'c', NULL);
        check_rounded(&fixture);
        prune_fixture_close(&fixture);
    }
}

/* The same codes by another stage, multiplied by another product, give the same bits. */
static void test_evaluate__same_bits_as_plain_codes(void **state)
{
    (void)state;
    const struct espl_model_config configs[] = {prune_llama_config(), prune_opt_config()};
    for (size_t i = 0; i < 2; i++) {
        struct prune_fixture fixture;
        struct espl_atom_params atom = quant_atom_defaults();
        const struct espl_pack_params params = pack_params(0);
        size_t count = 0;
        atom.method = ESPL_ATOM_RTN;
        atom.scale = ESPL_ATOM_SCALE_HALF;
        atom.reorder = ESPL_ATOM_REORDER_NONE;
        atom.weight_bits = 8;
        atom.activation_bits = 8;
        atom.kv_bits = 16;
        atom.max_perplexity_ratio = 0.0;
        atom.weight_clip = 1.0;
        atom.activation_clip = 1.0;
        atom.rows_per_scale = 1;
        atom.group_size = 0;
        atom.outlier_channels = 0;
        prune_open_case(&fixture, &configs[i], ESPL_DTYPE_F32, NULL);
        prune_nm(&fixture, 2, 4, 1);
        quant_run(&fixture, &espl_stage_nm_pack, &params, 'd', 'c', NULL);
        quant_run(&fixture, &espl_stage_atom_quantize, &atom, 'e', 'c', NULL);
        float *packed = quant_logits(&fixture, 'd', 2, TOKENS, NULL, NULL, &count);
        float *plain = quant_logits(&fixture, 'e', 2, TOKENS, NULL, NULL, &count);
        assert_memory_equal(packed, plain, count * sizeof *plain);
        free(packed);
        free(plain);
        prune_fixture_close(&fixture);
    }
}

/* ---- image models ---- */

static enum espl_status round_input(void *user, uint64_t block, enum espl_role role, float *x,
                                    size_t rows, size_t in, struct espl_error *err)
{
    (void)user;
    (void)block;
    (void)role;
    (void)err;
    espl_nm_round_int8(x, rows, in);
    return ESPL_OK;
}

static struct espl_vision *open_vision(struct prune_fixture *fixture, char digit, const char *port,
                                       struct espl_backend *backend,
                                       struct espl_artifact **artifact, struct espl_model **model)
{
    struct espl_vision *vision = NULL;
    struct espl_error err;
    assert_int_equal(
        espl_store_open_artifact(&fixture->store, prune_key(fixture, digit), port, artifact, &err),
        ESPL_OK);
    assert_int_equal(espl_model_open(*artifact, &fixture->store, model, &err), ESPL_OK);
    assert_int_equal(espl_vision_create(*model, backend, IMAGES, NULL, &vision, &err), ESPL_OK);
    return vision;
}

/* Logits of the masked model with weights and inputs rounded in float, as a search judges them. */
static void simulate(struct espl_vision *vision, const uint8_t *pixels, float *activations,
                     float *logits)
{
    static const enum espl_role roles[] = {ESPL_ROLE_QKV, ESPL_ROLE_O, ESPL_ROLE_FC1,
                                           ESPL_ROLE_FC2};
    struct espl_error err;
    assert_int_equal(espl_vision_embed(vision, pixels, IMAGES, activations, &err), ESPL_OK);
    for (uint64_t block = 0; block < espl_vision_blocks(vision); block++) {
        struct espl_vision_replacement replace = {{NULL}};
        float *rounded[4];
        for (size_t r = 0; r < 4; r++) {
            struct espl_matrix_shape shape;
            const float *own = espl_vision_weight(vision, block, roles[r], &shape);
            const size_t bytes = shape.rows * shape.cols * sizeof *own;
            rounded[r] = malloc(bytes);
            assert_non_null(rounded[r]);
            memcpy(rounded[r], own, bytes);
            espl_nm_round_int8(rounded[r], shape.rows, shape.cols);
            replace.weight[roles[r]] = rounded[r];
        }
        assert_int_equal(espl_vision_block(vision, block, &replace, IMAGES, activations,
                                           activations, round_input, NULL, &err),
                         ESPL_OK);
        for (size_t r = 0; r < 4; r++) {
            free(rounded[r]);
        }
    }
    assert_int_equal(espl_vision_head(vision, IMAGES, activations, logits, &err), ESPL_OK);
}

static void test_evaluate__image_model_as_simulated(void **state)
{
    (void)state;
    struct prune_fixture fixture;
    struct search_result result;
    struct espl_wanda_params wanda;
    struct espl_arena *arena = espl_arena_create((size_t)1 << 20);
    struct espl_backend *backend = NULL;
    struct espl_artifact *artifacts[2] = {NULL, NULL};
    struct espl_model *models[2] = {NULL, NULL};
    struct espl_error err;
    const struct espl_pack_params params = pack_params(0);
    search_fixture_open_stage(&fixture);
    search_default_params(&espl_stage_wanda_prune, arena, &wanda);
    wanda.common.pattern = (struct espl_nm){3, 8};
    wanda.common.vector = 8;
    const struct search_run prune = {.stage = &espl_stage_wanda_prune,
                                     .params = &wanda,
                                     .key_digit = 'c',
                                     .ports = {"model", "images"},
                                     .digits = {'a', 'b'}};
    search_run_stage(&fixture, &prune, &result);
    assert_int_equal(result.status, ESPL_OK);
    search_result_free(&result);
    const struct search_run pack = {.stage = &espl_stage_nm_pack,
                                    .params = &params,
                                    .key_digit = 'd',
                                    .ports = {"model"},
                                    .digits = {'c'}};
    search_run_stage(&fixture, &pack, &result);
    assert_int_equal(result.status, ESPL_OK);
    assert_true(search_metric(&result, "linears_v8") == 8.0);
    search_result_free(&result);

    assert_int_equal(espl_backend_open("cpu", 1, &backend, &err), ESPL_OK);
    struct espl_vision *masked =
        open_vision(&fixture, 'c', "model", backend, &artifacts[0], &models[0]);
    struct espl_vision *packed =
        open_vision(&fixture, 'd', "model", backend, &artifacts[1], &models[1]);
    const struct espl_model_config *config = espl_model_get_config(models[0]);
    const size_t pixel_bytes =
        (size_t)(config->vision.image_size * config->vision.image_size * config->vision.channels);
    const size_t classes = espl_vision_classes(masked);
    uint8_t *pixels = malloc(IMAGES * pixel_bytes);
    float *activations = malloc(IMAGES * espl_vision_values(masked, 0) * sizeof(float));
    float *logits = calloc(2 * IMAGES * classes, sizeof(float));
    assert_true(pixels != NULL && activations != NULL && logits != NULL);
    for (size_t i = 0; i < IMAGES * pixel_bytes; i++) {
        pixels[i] = (uint8_t)(i * 37 + i / 11);
    }
    simulate(masked, pixels, activations, logits);
    assert_int_equal(
        espl_vision_logits(packed, NULL, pixels, IMAGES, logits + IMAGES * classes, &err), ESPL_OK);
    /* Sums in float against exact ones; an input that lies between two codes may take either. */
    assert_true(quant_difference(logits, logits + IMAGES * classes, IMAGES * classes) < 2e-3);
    struct espl_matrix_shape shape;
    assert_null(espl_vision_weight(packed, 0, ESPL_ROLE_QKV, &shape));
    espl_vision_destroy(masked);
    espl_vision_destroy(packed);
    for (size_t i = 0; i < 2; i++) {
        espl_model_close(models[i]);
        espl_artifact_close(artifacts[i]);
    }
    espl_backend_close(backend);
    free(pixels);
    free(activations);
    free(logits);
    espl_arena_destroy(arena);
    prune_fixture_close(&fixture);
}

/* ---- what is shared ---- */

static double figure(const struct prune_result *result, const char *name)
{
    return json_number_value(json_object_get(result->metrics, name));
}

/* LLaMA fixture: 7 linears in each of 3 blocks; `count` of them are in figure `name`. A unit of 16
 * rows has 256 bytes of masks, or 32 where 8 rows share one, or 64 of selectors. Rows 24, 8, 8, 24,
 * 40, 40, 24 are in 2, 1, 1, 2, 3, 3, 2 stripes of one block of 128 columns. */
static void check_shared(int64_t vector, const char *most, const char *name, double count,
                         double pattern_bytes)
{
    struct prune_fixture fixture;
    struct prune_result result;
    const struct espl_model_config config = prune_llama_config();
    const struct espl_pack_params params = pack_params(vector_choice(most));
    prune_open_case(&fixture, &config, ESPL_DTYPE_F32, NULL);
    prune_nm(&fixture, 2, 8, vector);
    quant_run(&fixture, &espl_stage_nm_pack, &params, 'd', 'c', &result);
    assert_true(figure(&result, "linears") == 21.0);
    assert_true(figure(&result, name) == count);
    assert_true(figure(&result, "pattern_bytes") == pattern_bytes);
    assert_true(figure(&result, "packed_bytes") == figure(&result, "value_bytes") +
                                                       figure(&result, "pattern_bytes") +
                                                       figure(&result, "scale_bytes"));
    assert_true(figure(&result, "weights") >= 4.0 * figure(&result, "nonzero_codes"));
    prune_result_free(&result);
    prune_fixture_close(&fixture);
}

static void test_pack__shares_what_is_the_same_and_nothing_else(void **state)
{
    (void)state;
    check_shared(1, "auto", "linears_v1", 21.0, 3 * 14 * 256);
    check_shared(1, "64", "linears_v1", 21.0, 3 * 14 * 256);
    /* k and v have 8 rows: all of them share, so theirs is the largest V, one group of selectors.
     */
    check_shared(8, "auto", "linears_v8", 15.0, 3 * (12 * 32 + 2 * 16));
    check_shared(8, "auto", "linears_v64", 6.0, 3 * (12 * 32 + 2 * 16));
    check_shared(8, "8", "linears_v8", 21.0, 3 * 14 * 32);
    check_shared(8, "1", "linears_v1", 21.0, 3 * 14 * 256);
}

static void test_pack__what_has_no_mask_is_dense(void **state)
{
    (void)state;
    struct prune_fixture fixture;
    struct prune_result result;
    static const char *const target = "*.q_proj";
    const struct espl_model_config config = prune_llama_config();
    struct espl_wanda_params wanda = quant_wanda_params();
    struct espl_pack_params params = pack_params(0);
    wanda.common.pattern = (struct espl_nm){2, 8};
    wanda.common.layers.targets = (struct espl_list){1, &target};
    wanda.max_perplexity_ratio = 0.0;
    prune_open_case(&fixture, &config, ESPL_DTYPE_F32, NULL);
    quant_run(&fixture, &espl_stage_wanda_prune, &wanda, 'c', 'a', NULL);
    quant_run(&fixture, &espl_stage_nm_pack, &params, 'd', 'c', &result);
    assert_true(figure(&result, "linears_dense") == 18.0);
    assert_true(figure(&result, "linears_v1") == 3.0);
    prune_result_free(&result);
    check_rounded(&fixture);
    params.layers.targets = (struct espl_list){1, &target};
    quant_run(&fixture, &espl_stage_nm_pack, &params, 'e', 'c', &result);
    assert_true(figure(&result, "linears") == 3.0);
    prune_result_free(&result);
    prune_fixture_close(&fixture);
}

static void test_pack__refuses_infinite_weights(void **state)
{
    (void)state;
    enum { ROWS = 4, COLS = 8 };
    struct espl_error err;
    uint64_t counts[ESPL_PACK_COUNTS];
    float weights[ROWS * COLS] = {1.0f};
    const struct espl_pack_setup setup = {.m = 8, .most_v = 64};
    struct espl_quant_linear linear = {.out = ROWS, .in = COLS};
    weights[2 * COLS + 3] = INFINITY;
    assert_int_equal(espl_pack_linear(&setup, weights, NULL, true, &linear, counts, &err),
                     ESPL_E_NUMERIC);
    assert_non_null(strstr(err.message, "row 2, column 3"));
    espl_quant_linear_free(&linear);
}

static void test_pack__resumes_to_the_same_bytes(void **state)
{
    (void)state;
    struct prune_fixture whole;
    struct prune_fixture resumed;
    struct prune_result a;
    struct prune_result b;
    const struct espl_model_config config = prune_llama_config();
    const struct espl_pack_params params = pack_params(0);
    prune_open_case(&whole, &config, ESPL_DTYPE_F32, NULL);
    prune_open_case(&resumed, &config, ESPL_DTYPE_F32, NULL);
    prune_as(&whole, 2, 8, 8, 'd');
    prune_as(&resumed, 2, 8, 8, 'd');
    quant_run(&whole, &espl_stage_nm_pack, &params, 'c', 'd', &a);
    prune_copy_units(&whole, &resumed, 2);
    quant_run(&resumed, &espl_stage_nm_pack, &params, 'c', 'd', &b);
    assert_int_equal(b.resumed, 2);
    prune_assert_same(&whole, &resumed, &a, &b);
    prune_result_free(&a);
    prune_result_free(&b);
    prune_fixture_close(&whole);
    prune_fixture_close(&resumed);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_pack__holds_the_rounded_weights),
        cmocka_unit_test(test_evaluate__same_bits_as_plain_codes),
        cmocka_unit_test(test_evaluate__image_model_as_simulated),
        cmocka_unit_test(test_pack__shares_what_is_the_same_and_nothing_else),
        cmocka_unit_test(test_pack__what_has_no_mask_is_dense),
        cmocka_unit_test(test_pack__refuses_infinite_weights),
        cmocka_unit_test(test_pack__resumes_to_the_same_bytes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
