/* The model view of encoded models: datasets by hand, what a damaged file gives, and that no random
 * change of a file's arrays gets through as another crash. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "encode_fixture.h"

#include "core/rng.h"
#include "model/iebme_linear.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- datasets of a matrix made by hand ---- */

enum { ROWS = 20, COLS = 70 };

static struct espl_tensor_spec hand_weight(void)
{
    struct espl_tensor_spec spec = {.role = ESPL_ROLE_FC1, .layer = 0, .rank = 2};
    (void)snprintf(spec.path, sizeof spec.path, "/layers/000/fc1/weight");
    (void)snprintf(spec.module, sizeof spec.module, "layers.0.fc1");
    spec.shape[0] = ROWS;
    spec.shape[1] = COLS;
    return spec;
}

/* Writes one matrix of nearly empty codes to an artifact and reads it back. */
static void check_datasets(enum espl_iebme_areas areas, enum espl_iebme_scope scope)
{
    struct prune_fixture fixture;
    struct espl_error err;
    struct espl_artifact *artifact = NULL;
    struct espl_iebme_plan plan;
    struct espl_iebme_matrix matrix = {.masks = NULL};
    struct espl_iebme_matrix again = {.masks = NULL};
    char path[ESPL_PATH_MAX];
    int8_t codes[ROWS * COLS] = {0};
    uint64_t orders[4] = {UINT64_C(0x0123456789ABCDEF), ESPL_IEBME_ORDER_IDENTITY,
                          UINT64_C(0xFEDCBA9876543201), ESPL_IEBME_ORDER_IDENTITY};
    const struct espl_tensor_spec weight = hand_weight();
    const struct espl_iebme_layout layout = {ROWS, COLS, 4, areas, scope};
    const struct espl_iebme_layout asked = {.rows = ROWS, .cols = COLS, .bits = 4};
    codes[3] = -8;
    codes[17 * COLS + 69] = 7;
    prune_fixture_open(&fixture);
    assert_int_equal(espl_iebme_plan(codes, &layout, orders, &plan, &err), ESPL_OK);
    assert_int_equal(espl_iebme_encode(codes, orders, &plan, &matrix, &err), ESPL_OK);
    assert_true((size_t)snprintf(path, sizeof path, "%s/hand.h5", fixture.folder) < sizeof path);
    assert_int_equal(espl_artifact_create(path, "model.iebme/1", &artifact, &err), ESPL_OK);
    assert_int_equal(espl_iebme_codes_write(artifact, &weight, &matrix, &err), ESPL_OK);
    assert_int_equal(espl_artifact_finish(&artifact, NULL, &err), ESPL_OK);
    assert_int_equal(espl_artifact_open(path, &artifact, &err), ESPL_OK);
    const struct espl_tensor_info *found = espl_artifact_find(artifact, "/layers/000/fc1/areas");
    assert_int_equal(found->rank, areas == ESPL_IEBME_MIXED ? 2 : 1);
    found = espl_artifact_find(artifact, "/layers/000/fc1/values");
    assert_string_equal(found->packing, "int4-lsb0");
    assert_int_equal(found->logical_shape[0], plan.values);
    found = espl_artifact_find(artifact, "/layers/000/fc1/permutation");
    assert_int_equal(found == NULL ? 0 : found->rank, (int)scope);
    found = espl_artifact_find(artifact, "/layers/000/fc1/offsets");
    assert_int_equal(found == NULL, areas == ESPL_IEBME_DENSE);
    assert_int_equal(espl_iebme_codes_read(artifact, &weight, &asked, &again, &err), ESPL_OK);
    assert_memory_equal(&again.layout, &matrix.layout, sizeof layout);
    assert_int_equal(again.mask_words, matrix.mask_words);
    assert_int_equal(again.value_bytes, matrix.value_bytes);
    assert_int_equal(again.tag_count, matrix.tag_count);
    assert_int_equal(again.order_count, matrix.order_count);
    int8_t decoded[ROWS * COLS];
    assert_int_equal(espl_iebme_decode(&again, decoded, &err), ESPL_OK);
    assert_memory_equal(decoded, codes, sizeof codes);
    espl_iebme_matrix_free(&matrix);
    espl_iebme_matrix_free(&again);
    espl_artifact_close(artifact);
    prune_fixture_close(&fixture);
}

static void test_datasets__areas_and_scopes(void **state)
{
    (void)state;
    for (unsigned areas = 0; areas <= ESPL_IEBME_MIXED; areas++) {
        for (unsigned scope = 0; scope <= ESPL_IEBME_SCOPE_TILE; scope++) {
            check_datasets((enum espl_iebme_areas)areas, (enum espl_iebme_scope)scope);
        }
    }
}

/* ---- damage ---- */

/* Changes one dataset on its way into a copy of an artifact. *info: what is written; data: its
 * bytes, in a block with room for twice as many. Returns false to leave the dataset out. */
typedef bool (*damage_fn)(void *user, struct espl_tensor_info *info, uint8_t *data);

/* Copies the model 'c' to `copy` with damage to the dataset whose path ends in `tail`. */
static void copy_damaged(struct prune_fixture *fixture, const char *copy, const char *tail,
                         damage_fn damage, void *user)
{
    char path[ESPL_PATH_MAX];
    struct espl_error err;
    struct espl_artifact *from = NULL;
    struct espl_artifact *to = NULL;
    prune_path(fixture, 'c', path);
    assert_int_equal(espl_artifact_open(path, &from, &err), ESPL_OK);
    assert_int_equal(espl_artifact_create(copy, "model.iebme/1", &to, &err), ESPL_OK);
    assert_int_equal(espl_artifact_set_description(to, espl_artifact_description(from), &err),
                     ESPL_OK);
    for (size_t i = 0; i < espl_artifact_tensor_count(from); i++) {
        struct espl_tensor_info info = *espl_artifact_tensor(from, i);
        const size_t len = strlen(info.path);
        const size_t bytes = (size_t)info.bytes;
        uint8_t *data = calloc(2, bytes);
        assert_non_null(data);
        assert_int_equal(
            espl_artifact_read_rows(from, info.path, 0, info.shape[0], data, bytes, &err), ESPL_OK);
        const bool hit = len >= strlen(tail) && strcmp(info.path + len - strlen(tail), tail) == 0;
        if (!hit || damage(user, &info, data)) {
            assert_int_equal(espl_artifact_write(to, &info, data, &err), ESPL_OK);
        }
        free(data);
    }
    assert_int_equal(espl_artifact_finish(&to, NULL, &err), ESPL_OK);
    espl_artifact_close(from);
}

static void copy_path(const struct prune_fixture *fixture, char path[ESPL_PATH_MAX])
{
    assert_true(snprintf(path, ESPL_PATH_MAX, "%s/damaged.h5", fixture->folder) < ESPL_PATH_MAX);
}

/* Opens the model and reads every quantised linear, encoded and decoded. */
static enum espl_status read_all(const char *path, struct espl_error *err)
{
    struct espl_artifact *artifact = NULL;
    struct espl_model *model = NULL;
    enum espl_status status = espl_artifact_open(path, &artifact, err);
    if (status == ESPL_OK) {
        status = espl_model_open(artifact, NULL, &model, err);
    }
    for (size_t i = 0; status == ESPL_OK && i < espl_model_tensor_count(model); i++) {
        const struct espl_tensor_spec *spec = espl_model_tensor(model, i);
        struct espl_quant_linear linear;
        if (!espl_model_is_quantised(model, spec)) {
            continue;
        }
        status = espl_quant_linear_read_stored(model, spec->layer, spec->role, &linear, err);
        espl_quant_linear_free(&linear);
        if (status == ESPL_OK) {
            status = espl_quant_linear_read(model, spec->layer, spec->role, true, &linear, err);
            espl_quant_linear_free(&linear);
        }
    }
    espl_model_close(model);
    espl_artifact_close(artifact);
    return status;
}

static bool leave_out(void *user, struct espl_tensor_info *info, uint8_t *data)
{
    (void)user;
    (void)info;
    (void)data;
    return false;
}

static bool flip_first_bit(void *user, struct espl_tensor_info *info, uint8_t *data)
{
    (void)user;
    (void)info;
    data[0] ^= 1u;
    return true;
}

static bool code_77(void *user, struct espl_tensor_info *info, uint8_t *data)
{
    (void)user;
    (void)info;
    data[0] = 77;
    return true;
}

static bool one_more(void *user, struct espl_tensor_info *info, uint8_t *data)
{
    (void)user;
    (void)data;
    info->shape[0]++;
    info->logical_shape[0]++;
    info->bytes = info->shape[0] * espl_dtype_size(info->dtype);
    return true;
}

static bool twice_as_long(void *user, struct espl_tensor_info *info, uint8_t *data)
{
    (void)user;
    (void)data;
    info->shape[0] *= 2;
    info->logical_shape[0] *= 2;
    info->bytes *= 2;
    return true;
}

static bool another_packing(void *user, struct espl_tensor_info *info, uint8_t *data)
{
    (void)user;
    (void)data;
    (void)snprintf(info->packing, sizeof info->packing, "int8-lsb0");
    return true;
}

static bool flatten(void *user, struct espl_tensor_info *info, uint8_t *data)
{
    (void)user;
    (void)data;
    info->shape[0] *= info->shape[1];
    info->logical_shape[0] = info->shape[0];
    info->rank = 1;
    return true;
}

static void test_read__damage_is_corrupt(void **state)
{
    (void)state;
    static const struct {
        const char *tail;
        damage_fn damage;
        const char *message;
    } cases[] = {
        {"/layers/000/fc1/masks", leave_out, "masks end before tile"},
        {"/layers/000/fc1/offsets", leave_out, "offsets"},
        {"/layers/000/fc1/values", leave_out, "value bytes"},
        {"/layers/000/fc1/scales", leave_out, "has no dataset '/layers/000/fc1/scales'"},
        {"/layers/000/fc1/areas", leave_out, "has no tensor '/layers/000/fc1/weight'"},
        {"/layers/000/fc1/areas", code_77, "has unknown code 77"},
        {"/layers/000/fc1/areas", one_more, "'/layers/000/fc1/areas' of '"},
        {"/layers/000/fc1/offsets", flip_first_bit, "values of tile 0 start at"},
        {"/layers/000/fc1/offsets", one_more, "'/layers/000/fc1/offsets' of '"},
        {"/layers/000/fc1/masks", one_more, "mask words"},
        {"/layers/000/fc1/masks", twice_as_long, "mask words"},
        {"/layers/000/fc1/values", another_packing, "'/layers/000/fc1/values' of '"},
        {"/layers/000/fc1/permutation", flip_first_bit, "is not a permutation of 16 rows"},
        {"/layers/000/fc1/permutation", flatten, "'/layers/000/fc1/permutation' of '"},
        {"/layers/000/fc1/permutation", twice_as_long, "'/layers/000/fc1/permutation' of '"},
    };
    struct prune_fixture fixture;
    const struct espl_model_config config = encode_opt_config();
    const struct espl_atom_params params = quant_atom_params();
    encode_open(&fixture, &config, &params);
    encode_reorder(&fixture, 2, 1, ESPL_REORDER_TILE, 'd', NULL);
    encode_model(&fixture, "2x1", 'd', 'c', NULL);
    char path[ESPL_PATH_MAX];
    struct espl_error err;
    prune_path(&fixture, 'c', path);
    assert_int_equal(read_all(path, &err), ESPL_OK);
    copy_path(&fixture, path);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        copy_damaged(&fixture, path, cases[i].tail, cases[i].damage, NULL);
        assert_int_equal(read_all(path, &err), ESPL_E_CORRUPT);
        if (strstr(err.message, cases[i].message) == NULL) {
            fail_msg("case %zu: '%s' does not contain '%s'", i, err.message, cases[i].message);
        }
    }
    prune_fixture_close(&fixture);
}

static bool flip_some_bits(void *user, struct espl_tensor_info *info, uint8_t *data)
{
    struct espl_rng *rng = user;
    for (unsigned n = 0; n < 4; n++) {
        data[espl_rng_below(rng, info->bytes)] ^= (uint8_t)(1u << espl_rng_below(rng, 8));
    }
    return true;
}

/* The codec's own test has 100,000 of these; here they go through a file. */
static void test_read__random_damage_is_refused_or_harmless(void **state)
{
    (void)state;
    enum { ROUNDS = 60 };
    static const char *const tails[] = {"/fc2/masks", "/fc2/offsets", "/fc2/areas",
                                        "/q_proj/permutation"};
    struct prune_fixture fixture;
    struct espl_rng rng = espl_rng_stream(31, "damage", 0);
    struct espl_model_config config = encode_opt_config();
    const struct espl_atom_params params = quant_atom_params();
    char path[ESPL_PATH_MAX];
    unsigned refused = 0;
    config.layers = 1;
    encode_open(&fixture, &config, &params);
    encode_reorder(&fixture, 2, 1, ESPL_REORDER_STRIPE, 'd', NULL);
    encode_model(&fixture, "2x1", 'd', 'c', NULL);
    copy_path(&fixture, path);
    for (unsigned n = 0; n < ROUNDS; n++) {
        struct espl_error err;
        copy_damaged(&fixture, path, tails[n % 4], flip_some_bits, &rng);
        const enum espl_status status = read_all(path, &err);
        assert_true(status == ESPL_OK || status == ESPL_E_CORRUPT);
        refused += status == ESPL_E_CORRUPT ? 1 : 0;
    }
    assert_true(refused >= ROUNDS / 2);
    prune_fixture_close(&fixture);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_datasets__areas_and_scopes),
        cmocka_unit_test(test_read__damage_is_corrupt),
        cmocka_unit_test(test_read__random_damage_is_refused_or_harmless),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
