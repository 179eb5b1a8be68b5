/* Datasets of linears whose codes are packed N:M: what is written is read, and what does not fit
 * its layer, or is no packed matrix, is refused. */
#include "support/cmocka_all.h"

#include "prune_fixture.h"

#include "core/rng.h"
#include "model/nm_linear.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ROWS = 40, COLS = 72, M = 8 };

static struct espl_tensor_spec hand_weight(void)
{
    struct espl_tensor_spec spec = {.role = ESPL_ROLE_FC1, .layer = 0, .rank = 2};
    (void)snprintf(spec.path, sizeof spec.path, "/layers/000/fc1/weight");
    (void)snprintf(spec.module, sizeof spec.module, "layers.0.fc1");
    spec.shape[0] = ROWS;
    spec.shape[1] = COLS;
    return spec;
}

/* n of every 8 codes, at places that 8 rows share. */
static void make_codes(unsigned n, int8_t *codes)
{
    struct espl_rng rng = espl_rng_stream(3, "packed", n);
    memset(codes, 0, ROWS * COLS);
    for (size_t row = 0; row < ROWS; row++) {
        for (size_t window = 0; window < COLS / M; window++) {
            for (size_t k = 0; k < n; k++) {
                const size_t place = (k + window + row / 8 * 3) % M;
                codes[row * COLS + window * M + place] = (int8_t)(1 + espl_rng_below(&rng, 127));
            }
        }
    }
}

static void path_of(const struct prune_fixture *fixture, char path[ESPL_PATH_MAX])
{
    assert_true((size_t)snprintf(path, ESPL_PATH_MAX, "%s/hand.h5", fixture->folder) <
                ESPL_PATH_MAX);
}

static void finish_and_open(struct espl_artifact **artifact, const char *path)
{
    struct espl_error err;
    assert_int_equal(espl_artifact_finish(artifact, NULL, &err), ESPL_OK);
    assert_int_equal(espl_artifact_open(path, artifact, &err), ESPL_OK);
}

static void check_round_trip(unsigned n, unsigned v)
{
    struct prune_fixture fixture;
    struct espl_error err;
    struct espl_artifact *artifact = NULL;
    struct espl_nm_matrix matrix;
    struct espl_nm_matrix again;
    char path[ESPL_PATH_MAX];
    static int8_t codes[ROWS * COLS];
    static int8_t decoded[ROWS * COLS];
    const struct espl_tensor_spec weight = hand_weight();
    const struct espl_nm_layout layout = {ROWS, COLS, n, M, v};
    make_codes(n, codes);
    prune_fixture_open(&fixture);
    path_of(&fixture, path);
    assert_int_equal(espl_nm_encode(codes, &layout, &matrix, &err), ESPL_OK);
    assert_int_equal(espl_artifact_create(path, "model.nm/1", &artifact, &err), ESPL_OK);
    assert_int_equal(espl_nm_codes_write(artifact, &weight, &matrix, &err), ESPL_OK);
    finish_and_open(&artifact, path);
    assert_true(espl_nm_is_stored(artifact, &weight));
    assert_int_equal(espl_artifact_find(artifact, "/layers/000/fc1/patterns") == NULL, n == M);
    assert_int_equal(espl_nm_codes_read(artifact, &weight, &again, &err), ESPL_OK);
    assert_memory_equal(&again.layout, &matrix.layout, sizeof layout);
    assert_int_equal(espl_nm_decode(&again, decoded, &err), ESPL_OK);
    assert_memory_equal(decoded, codes, sizeof codes);
    espl_nm_free(&matrix);
    espl_nm_free(&again);
    espl_artifact_close(artifact);
    prune_fixture_close(&fixture);
}

static void test_datasets__what_is_written_is_read(void **state)
{
    (void)state;
    check_round_trip(2, 8);
    check_round_trip(3, 1);
    check_round_trip(8, 1);
}

/* One dataset of the hand-made matrix is not as it should be. */
struct damage {
    uint8_t facts[3];
    int more_values;   /* bytes too many, or too few */
    int more_patterns; /* -1000: no dataset */
    uint8_t pattern_flip;
    enum espl_status status;
    const char *message;
};

static void write_bytes(struct espl_artifact *artifact, const char *part, const uint8_t *data,
                        uint64_t bytes)
{
    char path[ESPL_TENSOR_PATH];
    struct espl_error err;
    (void)snprintf(path, sizeof path, "/layers/000/fc1/%s", part);
    const struct espl_tensor_info info = espl_tensor_info_make(path, ESPL_DTYPE_U8, 1, &bytes);
    assert_int_equal(espl_artifact_write(artifact, &info, data, &err), ESPL_OK);
}

static void check_damage(const struct damage *damage)
{
    enum { ROOM = 1 << 16 };
    struct prune_fixture fixture;
    struct espl_error err;
    struct espl_artifact *artifact = NULL;
    struct espl_nm_matrix matrix;
    char path[ESPL_PATH_MAX];
    static int8_t codes[ROWS * COLS];
    static uint8_t bytes[ROOM];
    const struct espl_tensor_spec weight = hand_weight();
    const struct espl_nm_layout layout = {ROWS, COLS, 2, M, 8};
    make_codes(2, codes);
    prune_fixture_open(&fixture);
    path_of(&fixture, path);
    assert_int_equal(espl_nm_encode(codes, &layout, &matrix, &err), ESPL_OK);
    assert_true(matrix.value_bytes + 100 < ROOM && matrix.pattern_bytes + 100 < ROOM);
    assert_int_equal(espl_artifact_create(path, "model.nm/1", &artifact, &err), ESPL_OK);
    write_bytes(artifact, "nm", damage->facts, sizeof damage->facts);
    memcpy(bytes, matrix.values, matrix.value_bytes);
    write_bytes(artifact, "values", bytes,
                (uint64_t)((int64_t)matrix.value_bytes + damage->more_values));
    memcpy(bytes, matrix.patterns, matrix.pattern_bytes);
    bytes[0] ^= damage->pattern_flip;
    if (damage->more_patterns > -1000) {
        write_bytes(artifact, "patterns", bytes,
                    (uint64_t)((int64_t)matrix.pattern_bytes + damage->more_patterns));
    }
    espl_nm_free(&matrix);
    finish_and_open(&artifact, path);
    assert_int_equal(espl_nm_codes_read(artifact, &weight, &matrix, &err), damage->status);
    if (damage->status != ESPL_OK && strstr(err.message, damage->message) == NULL) {
        fail_msg("'%s' does not contain '%s'", err.message, damage->message);
    }
    espl_nm_free(&matrix);
    espl_artifact_close(artifact);
    prune_fixture_close(&fixture);
}

static void test_read__damage_is_refused(void **state)
{
    (void)state;
    static const struct damage cases[] = {
        {{2, M, 8}, 0, 0, 0, ESPL_OK, ""},
        {{9, M, 8}, 0, 0, 0, ESPL_E_UNSUPPORTED, "cannot pack 9 of 8"},
        {{0, M, 8}, 0, 0, 0, ESPL_E_UNSUPPORTED, "cannot pack 0 of 8"},
        {{2, 7, 8}, 0, 0, 0, ESPL_E_UNSUPPORTED, "cannot pack 2 of 7"},
        {{2, M, 5}, 0, 0, 0, ESPL_E_UNSUPPORTED, "patterns of 5 rows"},
        {{3, M, 8}, 0, 0, 0, ESPL_E_CORRUPT, "'/layers/000/fc1/values' of '"},
        {{2, M, 8}, 1, 0, 0, ESPL_E_CORRUPT, "'/layers/000/fc1/values' of '"},
        {{2, M, 8}, -1, 0, 0, ESPL_E_CORRUPT, "'/layers/000/fc1/values' of '"},
        {{2, M, 8}, 0, 1, 0, ESPL_E_CORRUPT, "'/layers/000/fc1/patterns' of '"},
        {{2, M, 8}, 0, -1000, 0, ESPL_E_CORRUPT, "has no dataset '/layers/000/fc1/patterns'"},
        {{2, M, 1}, 0, 0, 0, ESPL_E_CORRUPT, "'/layers/000/fc1/patterns' of '"},
        {{2, M, 8}, 0, 0, 1, ESPL_E_CORRUPT, "in window 0 is not 2 of 8"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        check_damage(&cases[i]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_datasets__what_is_written_is_read),
        cmocka_unit_test(test_read__damage_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
