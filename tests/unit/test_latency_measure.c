/* What latency-profile makes of a device's timings: a kernel that has no product for a shape leaves
 * no figure, and the faster of two dense ones counts. The device is made of numbers. */
#include "support/cmocka_all.h"

#include "search_stage_fixture.h"
#include "stages/latency_profile/latency_measure.h"
#include "stages/latency_profile/nm_stack_kinds.h"

#include <math.h>

enum { M = 4, VECTOR = 8 };

static double seconds_of(const struct espl_latency_shape *shape, unsigned n, int kernel)
{
    switch (kernel) {
    case ESPL_NM_KERNEL_DENSE:
        return 4.0;
    case ESPL_NM_KERNEL_LIBRARY:
        return shape->in % 16 == 0 ? 3.0 : 0.0; /* no product */
    default:
        return 1.2 * n;
    }
}

static enum espl_status time_product(struct espl_nm_stack *stack,
                                     const struct espl_latency_shape *shape, unsigned n, int kernel,
                                     double *seconds, struct espl_error *err)
{
    (void)stack;
    (void)err;
    assert_true(kernel == ESPL_NM_KERNEL_SPARSE ? n < M : n == M);
    *seconds = seconds_of(shape, n, kernel);
    return ESPL_OK;
}

static const struct espl_nm_stack_kind kind = {.kernels = {"own", "sparse", "library"},
                                               .time_product = time_product};

static struct espl_nm_layer layer_of(const char *module, uint64_t out, uint64_t in)
{
    struct espl_nm_layer layer = {.spec = {.rank = 2, .shape = {out, in}}, .tokens = 5};
    (void)snprintf(layer.spec.module, sizeof layer.spec.module, "%s", module);
    return layer;
}

static void expect_level(const struct espl_latency_table *table, size_t shape, unsigned n,
                         unsigned level, int kernel, double seconds)
{
    const size_t at = shape * M + n - 1;
    assert_int_equal(table->chosen_level[at], level);
    assert_int_equal(table->chosen_kernel[at], kernel);
    assert_true(table->envelope[at] == seconds);
}

static enum espl_status measure(struct espl_stage_ctx *ctx, const void *params,
                                struct espl_error *err)
{
    struct espl_nm_layer items[] = {layer_of("a", 8, 16), layer_of("b", 8, 12)};
    const struct espl_nm_layers layers = {items, 2};
    const struct espl_latency_plan plan = {
        .batch = 1, .m = M, .vector = VECTOR, .repeats = 3, .run_repeats = 1};
    struct espl_nm_stack stack = {.kind = &kind};
    struct espl_latency_record record;
    const struct espl_latency_table *table = &record.latency.table;
    (void)params;
    enum espl_status status =
        espl_latency_record_begin(&layers, &plan, "here", kind.kernels, &record, err);
    if (status == ESPL_OK) {
        status = espl_latency_measure(ctx, &stack, &plan, &record, err);
    }
    if (status == ESPL_OK) {
        assert_int_equal(record.kernel_count, 3);
        assert_true(table->raw[espl_latency_index(table, 0, M, ESPL_NM_KERNEL_LIBRARY)] == 3.0);
        assert_true(isnan(table->raw[espl_latency_index(table, 1, M, ESPL_NM_KERNEL_LIBRARY)]));
        expect_level(table, 0, 4, 4, ESPL_NM_KERNEL_LIBRARY, 3.0);
        expect_level(table, 0, 3, 4, ESPL_NM_KERNEL_LIBRARY, 3.0);
        expect_level(table, 0, 2, 2, ESPL_NM_KERNEL_SPARSE, 2.4);
        expect_level(table, 1, 4, 4, ESPL_NM_KERNEL_DENSE, 4.0);
        expect_level(table, 1, 3, 3, ESPL_NM_KERNEL_SPARSE, 1.2 * 3);
    }
    espl_latency_record_free(&record);
    return status;
}

static void test_table__of_three_kernels(void **state)
{
    (void)state;
    static const struct espl_port no_ports[] = {{NULL, NULL, 0, NULL}};
    static const struct espl_stage stage = {
        .name = "measure", .inputs = no_ports, .outputs = no_ports, .run = measure};
    const struct search_run run = {.stage = &stage, .key_digit = 'c'};
    struct prune_fixture fixture;
    struct search_result result;
    search_fixture_open_stage(&fixture);
    search_run_stage(&fixture, &run, &result);
    if (result.status != ESPL_OK) {
        fail_msg("%s", result.err.message);
    }
    search_result_free(&result);
    prune_fixture_close(&fixture);
}

/* Without sparse products a table has our dense kernel alone. */
static void test_record__kernels_without_patterns(void **state)
{
    (void)state;
    struct espl_nm_layer item = layer_of("a", 8, 16);
    const struct espl_nm_layers layers = {&item, 1};
    const struct espl_latency_plan plan = {.batch = 1, .m = M, .repeats = 3};
    struct espl_latency_record record;
    assert_int_equal(espl_latency_record_begin(&layers, &plan, "here", kind.kernels, &record, NULL),
                     ESPL_OK);
    assert_int_equal(record.kernel_count, 1);
    assert_string_equal(record.kernels[0], "own");
    espl_latency_record_free(&record);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_table__of_three_kernels),
        cmocka_unit_test(test_record__kernels_without_patterns),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
