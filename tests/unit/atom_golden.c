#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "atom_golden.h"

#include "quant_fixture.h"
#include "text_fixture.h"

#include "core/checked.h"
#include "core/codes.h"
#include "core/log.h"
#include "model/quantised.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Relative differences of perplexity: as asked for GPTQ, whose codes depend on every rounding
 * before them; evaluation alone is closer. */
static const double QUANTISED_TOLERANCE = 0.005;
static const double FLOAT_TOLERANCE = 0.0005;

static void check(enum espl_status status, const struct espl_error *err)
{
    if (status != ESPL_OK) {
        fail_msg("%s [%s] (%s)", err->message, err->context, err->hint);
    }
}

struct golden {
    const char *model, *kind;
    json_t *file, *values; /* values: of the kind */
    char model_dir[GOLDEN_PATH];
    int32_t *test;
    size_t windows, tokens; /* evaluated */
    struct prune_fixture fixture;
};

/* ---- what is compared ---- */

static struct espl_atom_params scheme_params(const char *scheme)
{
    struct espl_atom_params params = quant_atom_defaults();
    if (strcmp(scheme, "w8a8") == 0) {
        params.weight_bits = 8;
        params.activation_bits = 8;
        params.kv_bits = 8;
        params.weight_clip = 1.0;
        params.activation_clip = 1.0;
    } else if (strcmp(scheme, "w4a16") == 0) {
        params.activation_bits = 16;
        params.kv_bits = 16;
    } else if (strcmp(scheme, "w4a4-rtn") == 0) {
        params.method = ESPL_ATOM_RTN;
    } else {
        assert_string_equal(scheme, "w4a4");
    }
    return params;
}

static void compare_perplexity(struct golden *golden, char key, const char *what, double expected,
                               double tolerance)
{
    const double got =
        text_perplexity(&golden->fixture, key, golden->test, golden->windows, golden->tokens);
    print_message("  %s %s %-9s perplexity over %zu windows %9.5f, golden %9.5f, ratio - 1 = "
                  "%+.1e\n",
                  golden->model, golden->kind, what, golden->windows, got, expected,
                  got / expected - 1.0);
    assert_true(expected > 1.0);
    assert_true(fabs(got / expected - 1.0) < tolerance);
}

/* SHA-256 of codes one a byte, scales, outlier codes, outlier scales. */
static void hash_linear(const struct espl_quant_linear *linear, char hex[ESPL_SHA256_HEX])
{
    const size_t codes = linear->out * linear->normal;
    struct espl_sha256 *hash = espl_sha256_create();
    int8_t *unpacked = malloc(codes);
    assert_true(hash != NULL && unpacked != NULL);
    espl_codes_unpack(linear->codes, linear->out, linear->normal, linear->weight_bits, unpacked);
    espl_sha256_update(hash, unpacked, codes);
    espl_sha256_update(hash, linear->scales,
                       espl_ceil_div(linear->out, linear->rows_per_scale) * linear->groups *
                           sizeof(float));
    espl_sha256_update(hash, linear->outlier_codes, linear->out * linear->outliers);
    espl_sha256_update(hash, linear->outlier_scales, linear->out * sizeof(float));
    espl_sha256_finish(hash, hex);
    espl_sha256_destroy(hash);
    free(unpacked);
}

/* Orders of all blocks one after the other: what round to nearest has from the calibration. */
static uint16_t *read_orders(const struct golden *golden, size_t *count)
{
    char name[128], path[GOLDEN_PATH];
    size_t bytes = 0;
    (void)snprintf(name, sizeof name, "golden/atom/%s-%s-orders.u16", golden->model, golden->kind);
    golden_path(name, path);
    uint16_t *orders = golden_read(path, &bytes);
    *count = bytes / sizeof *orders;
    return orders;
}

struct comparison {
    size_t channels, moved;   /* places in orders; those that hold another channel */
    size_t linears, compared; /* all; those whose orders are the golden ones */
    size_t codes, different;  /* codes of the compared ones; of those among them that differ */
};

static size_t misplaced(const int32_t *order, const uint16_t *golden, size_t count)
{
    size_t different = 0;
    for (size_t i = 0; i < count; i++) {
        different += order[i] != (int32_t)golden[i];
    }
    return different;
}

/* orders: the golden ones of the block. */
static void compare_linear(const struct golden *golden, const struct espl_tensor_spec *spec,
                           const struct espl_quant_linear *linear,
                           const uint16_t *const orders[ESPL_QUANT_SITES],
                           struct comparison *result)
{
    char hex[ESPL_SHA256_HEX];
    const char *expected = json_string_value(
        json_object_get(json_object_get(golden->values, "rtn_sha256"), spec->module));
    assert_non_null(expected);
    result->linears++;
    if (misplaced(linear->order, orders[espl_quant_site_of(spec->role)], linear->in) != 0 ||
        (linear->row_order != NULL &&
         misplaced(linear->row_order, orders[ESPL_QUANT_MLP_MID], linear->out) != 0)) {
        print_message("  '%s' is not compared: its channels stand in another order\n",
                      spec->module);
        return;
    }
    hash_linear(linear, hex);
    result->compared++;
    result->codes += linear->out * linear->in;
    if (strcmp(hex, expected) != 0) {
        print_error("codes or scales of '%s' differ from the golden ones\n", spec->module);
        result->different += linear->out * linear->in;
    }
}

/* Returns the orders of the next block. */
static const uint16_t *compare_block(const struct golden *golden, struct espl_model *model,
                                     int64_t layer, const uint16_t *next, const uint16_t *end,
                                     struct comparison *result)
{
    const struct espl_model_config *config = espl_model_get_config(model);
    const uint16_t *orders[ESPL_QUANT_SITES];
    struct espl_quant_linear linear;
    struct espl_error err;
    for (int site = 0; site < ESPL_QUANT_SITES; site++) {
        const enum espl_role first = espl_quant_site_roles(config, (enum espl_quant_site)site)[0];
        check(espl_quant_linear_read(model, layer, first, false, &linear, &err), &err);
        assert_true(linear.order != NULL && linear.in <= (size_t)(end - next));
        orders[site] = next;
        result->channels += linear.in;
        result->moved += misplaced(linear.order, next, linear.in);
        next += linear.in;
        espl_quant_linear_free(&linear);
    }
    for (const enum espl_role *role = espl_forward_block_roles(config); *role != ESPL_ROLE_NONE;
         role++) {
        check(espl_quant_linear_read(model, layer, *role, false, &linear, &err), &err);
        compare_linear(golden, espl_model_find(model, layer, *role, false), &linear, orders,
                       result);
        espl_quant_linear_free(&linear);
    }
    return next;
}

/* Round to nearest sees the calibration only through the orders: where these agree, every code and
 * every scale must. Sums of squares that differ in their last bits may swap neighbours. */
static void compare_codes(struct golden *golden, char key)
{
    struct espl_artifact *artifact = NULL;
    struct espl_model *model = NULL;
    struct comparison result = {0};
    size_t count = 0;
    uint16_t *orders = read_orders(golden, &count);
    const uint16_t *next = orders;
    prune_open(&golden->fixture, key, &artifact, &model);
    for (uint64_t layer = 0; layer < espl_model_get_config(model)->layers; layer++) {
        next = compare_block(golden, model, (int64_t)layer, next, orders + count, &result);
    }
    assert_ptr_equal(next, orders + count);
    print_message("  %s %s: %zu of %zu channels stand elsewhere; %zu of %zu codes in %zu of %zu "
                  "linears differ\n",
                  golden->model, golden->kind, result.moved, result.channels, result.different,
                  result.codes, result.compared, result.linears);
    assert_int_equal(result.different, 0);
    assert_true(result.moved * 1000 <= result.channels);
    assert_true(result.compared * 4 >= result.linears * 3);
    espl_model_close(model);
    espl_artifact_close(artifact);
    free(orders);
}

/* ---- the run ---- */

static double number(const json_t *object, const char *name)
{
    const json_t *value = json_object_get(object, name);
    if (!json_is_number(value)) {
        fail_msg("no number '%s' in the golden file", name);
    }
    return json_number_value(value);
}

static bool open_golden(struct golden *golden)
{
    char name[128], path[GOLDEN_PATH], calibration[GOLDEN_PATH], test[GOLDEN_PATH];
    uint64_t starts[4];
    size_t count = 0;
    (void)snprintf(name, sizeof name, "golden/atom/%s.json", golden->model);
    golden_path(name, path);
    golden->file = json_load_file(path, 0, NULL);
    assert_non_null(golden->file);
    golden->values = json_object_get(golden->file, golden->kind);
    assert_non_null(golden->values);
    if (!golden_model_dir(golden->model, golden->model_dir) ||
        !text_find(json_string_value(json_object_get(golden->file, "calibration")), calibration) ||
        (!text_find("novels-test.txt.xz", test) && !text_find("novels-test-sample.txt.xz", test))) {
        json_decref(golden->file);
        return false;
    }
    golden->windows = (size_t)number(golden->file, "evaluated_windows");
    golden->tokens = (size_t)number(golden->file, "sequence_length");
    golden->test = text_tokenise(golden->model_dir, test, &count, NULL);
    assert_true(count >= golden->windows * golden->tokens);
    prune_fixture_open(&golden->fixture);
    prune_import(&golden->fixture, 'a', golden->model_dir);
    count = text_calibration(&golden->fixture, 'b', golden->model_dir, calibration, 0,
                             (uint64_t)number(golden->file, "windows"), golden->tokens, starts);
    assert_true((double)count == number(golden->file, "calibration_tokens"));
    const json_t *first = json_object_get(golden->file, "first_starts");
    assert_int_equal(json_array_size(first), 4);
    for (size_t i = 0; i < 4; i++) {
        assert_int_equal(starts[i], json_integer_value(json_array_get(first, i)));
    }
    return true;
}

/* The model to quantise, and its perplexity. Returns its key. */
static char prepare_model(struct golden *golden)
{
    const struct espl_wanda_params half = quant_wanda_params();
    if (strcmp(golden->kind, "pruned") != 0) {
        compare_perplexity(golden, 'a', "float", number(golden->file, "dense_perplexity"),
                           FLOAT_TOLERANCE);
        return 'a';
    }
    quant_run(&golden->fixture, &espl_stage_wanda_prune, &half, 'c', 'a', NULL);
    compare_perplexity(golden, 'c', "float", number(golden->values, "float_perplexity"),
                       FLOAT_TOLERANCE);
    return 'c';
}

void atom_golden_check(const char *model, const char *kind, const char *scheme)
{
    struct golden golden = {.model = model, .kind = kind};
    const char *name = NULL;
    json_t *perplexity = NULL;
    char key = '0';
    if (!open_golden(&golden)) {
        print_message("SKIPPED: model '%s' or its texts are not there\n", model);
        skip();
    }
    const char from = prepare_model(&golden);
    json_object_foreach(json_object_get(golden.values, "perplexity"), name, perplexity)
    {
        const struct espl_atom_params params = scheme_params(name);
        if (scheme != NULL && strcmp(scheme, name) != 0) {
            continue;
        }
        const double start = espl_clock_monotonic();
        quant_run(&golden.fixture, &espl_stage_atom_quantize, &params, key, from, NULL);
        print_message("  %s %s: %s quantised in %.1f s\n", model, kind, name,
                      espl_clock_monotonic() - start);
        compare_perplexity(&golden, key, name, json_real_value(perplexity), QUANTISED_TOLERANCE);
        if (params.method == ESPL_ATOM_RTN) {
            compare_codes(&golden, key);
        }
        key++;
    }
    assert_true(key > '0');
    free(golden.test);
    json_decref(golden.file);
    prune_fixture_close(&golden.fixture);
}
