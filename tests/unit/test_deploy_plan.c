/* The plan of deploy-bench on a CUDA device (the jobs here leave `device` at auto, which means
 * that): what it needs, and what is refused with its place in the job file. */
#include "plan_fixture.h"

#include "support/cmocka_all.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

extern const struct espl_stage espl_stage_atom_quantize;
extern const struct espl_stage espl_stage_deploy_bench;

static const struct espl_stage *const registry[] = {&espl_stage_atom_quantize,
                                                    &espl_stage_deploy_bench, NULL};

#define QUANT_OF(bits)                \
    "  - id: quant\n" /* line 4 */    \
    "    use: atom-quantize\n"        \
    "    in: {model: M, tokens: T}\n" \
    "    with: {group_size: 8, outlier_channels: 8, weight_bits: " bits "}\n"

static void test_plan__notes_what_is_measured(void **state)
{
    (void)state;
    struct planned planned;
    const struct espl_model_config config = prune_llama_config();
    plan_stages(&planned, registry, &config, 11, 16,
                QUANT_OF("4") "  - {id: bench, use: deploy-bench, in: quant, with: {tokens: 8}}\n");
    plan_expect_clean(&planned);
    const struct espl_estimate *estimate = &planned.plan->stages[1].estimate;
    assert_string_equal(estimate->note, "5 forms at 1 numbers of tokens, on cuda:0");
    assert_true(estimate->device_bytes > 0 && estimate->host_bytes > 0);
    plan_free(&planned);
}

static void test_plan__notes_what_decodes(void **state)
{
    (void)state;
    struct planned planned;
    const struct espl_model_config config = prune_llama_config();
    plan_stages(&planned, registry, &config, 11, 16,
                QUANT_OF("4") "  - {id: bench, use: deploy-bench, in: quant, with: {mode: decode, "
                              "sequences: [1, 2, 4], output_tokens: [8, 16], against: "
                              "[dense-int8, dense-fp16]}}\n");
    plan_expect_clean(&planned);
    const struct espl_estimate *estimate = &planned.plan->stages[1].estimate;
    assert_string_equal(estimate->note, "3 runtimes at 6 places, on cuda:0");
    assert_true(estimate->device_bytes > 0 && estimate->host_bytes > 0);
    assert_false(estimate->device_only);
    plan_free(&planned);
    plan_stages(&planned, registry, &config, 11, 16,
                QUANT_OF("4") "  - {id: bench, use: deploy-bench, in: quant, with: {mode: decode, "
                              "sequences: 1, against: none}}\n");
    plan_expect_clean(&planned);
    assert_string_equal(planned.plan->stages[1].estimate.note, "1 runtime at 1 places, on cuda:0");
    plan_free(&planned);
    plan_stages(&planned, registry, &config, 11, 16,
                QUANT_OF("8") "  - {id: bench, use: deploy-bench, in: quant, with: {mode: decode, "
                              "sequences: [1, 2], energy: rapl}}\n"
                              "device: cpu\n");
    plan_expect_clean(&planned);
    estimate = &planned.plan->stages[1].estimate;
    assert_string_equal(estimate->note, "1 runtime at 2 places, on the CPU");
    assert_int_equal(estimate->device_bytes, 0);
    /* the work space of 2 windows of 128, the cache, the codes */
    assert_true(estimate->host_bytes > 2 * 128 * (24 + 3 * 2 * 8) * sizeof(float));
    plan_free(&planned);
}

static uint64_t host_bytes_of(const char *quant)
{
    struct planned planned;
    const struct espl_model_config config = prune_llama_config();
    char stages[1024];
    (void)snprintf(stages, sizeof stages,
                   "%s  - {id: bench, use: deploy-bench, in: quant, with: {mode: decode}}\n"
                   "device: cpu\n",
                   quant);
    plan_stages(&planned, registry, &config, 11, 16, stages);
    plan_expect_clean(&planned);
    const uint64_t bytes = planned.plan->stages[1].estimate.host_bytes;
    plan_free(&planned);
    return bytes;
}

/* The CPU keeps linears without codes as floats: here 14, of at most 24 x 40. */
static void test_plan__cpu_keeps_linears_in_float(void **state)
{
    (void)state;
    static const char part[] = "  - id: quant\n"
                               "    use: atom-quantize\n"
                               "    in: {model: M, tokens: T}\n"
                               "    with: {group_size: 8, outlier_channels: 8, first_layer: 2}\n";
    assert_int_equal(host_bytes_of(part), host_bytes_of(QUANT_OF("4")) + 14 * (24 * 40 * 4));
}

static void test_plan__says_what_runs_on_the_cpu(void **state)
{
    (void)state;
    struct planned planned;
    const struct espl_model_config config = prune_llama_config();
    plan_stages(&planned, registry, &config, 11, 16,
                QUANT_OF("4") "  - {id: again, use: atom-quantize, in: {model: M, tokens: T}, "
                              "with: {group_size: 8, outlier_channels: 8, weight_bits: 3}}\n"
                              "  - {id: bench, use: deploy-bench, in: quant}\n"
                              "device: cuda:0\n");
    plan_expect_clean(&planned);
    assert_string_equal(planned.plan->stages[0].warnings,
                        "this stage and 1 more have no CUDA kernels: they run on the CPU");
    assert_string_equal(planned.plan->stages[1].warnings, "");
    assert_string_equal(planned.plan->stages[2].warnings, "");
    plan_free(&planned);
}

static void refuse(const char *stages, unsigned line, const char *message, const char *hint)
{
    const struct espl_model_config config = prune_llama_config();
    plan_expect_refusal(registry, &config, 11, 16, stages, line, message, hint);
}

static void test_plan__refusals(void **state)
{
    (void)state;
    refuse(QUANT_OF("4") "  - id: bench\n"
                         "    use: deploy-bench\n"
                         "    in: quant\n"
                         "    with: {tokens: [1, 8, 1]}\n",
           11, "'tokens' names 1 twice", "once");
    refuse(QUANT_OF("4") "  - id: bench\n"
                         "    use: deploy-bench\n"
                         "    in: quant\n"
                         "    with: {forms: [1x1, 1x1]}\n",
           11, "'forms' names '1x1' twice", "once");
    refuse(QUANT_OF("4") "  - id: bench\n"
                         "    use: deploy-bench\n"
                         "    in: quant\n"
                         "    with: {baselines: [sgemm-f32]}\n",
           11, "baseline 'sgemm-f32' does not run on a CUDA device", "auto takes those");
    refuse(QUANT_OF("4") "  - id: bench\n"
                         "    use: deploy-bench\n"
                         "    in: quant\n"
                         "    with: {baselines: [none, cublas-fp16]}\n",
           11, "'none' must stand alone in 'baselines'", "name the baselines");
    refuse(QUANT_OF("4") "  - id: bench\n"
                         "    use: deploy-bench\n"
                         "    in: quant\n"
                         "    with: {baselines: [cublas-fp16, cublas-fp16]}\n",
           11, "'baselines' names 'cublas-fp16' twice", "once");
    refuse(QUANT_OF("4") "  - id: bench\n"
                         "    use: deploy-bench\n"
                         "    in: quant\n"
                         "    with: {tuning: nowhere.json}\n",
           11, "cannot find tuning file 'nowhere.json'", "");
    refuse(QUANT_OF("8") "  - id: bench\n"
                         "    use: deploy-bench\n"
                         "    in: quant\n",
           10, "the CUDA kernels take codes of 2, 3 or 4 bits, not 8", "measure the CPU");
}

static void test_plan__refusals_of_decoding(void **state)
{
    (void)state;
    refuse(QUANT_OF("4") "  - id: bench\n"
                         "    use: deploy-bench\n"
                         "    in: quant\n"
                         "    with: {mode: decode, against: [none, dense-fp16]}\n",
           11, "'none' must stand alone in 'against'", "name the runtimes");
    refuse(QUANT_OF("4") "  - id: bench\n"
                         "    use: deploy-bench\n"
                         "    in: quant\n"
                         "    with: {mode: decode, sequences: [8, 1, 8]}\n",
           11, "'sequences' names 8 twice", "once");
    refuse(QUANT_OF("4") "  - id: bench\n"
                         "    use: deploy-bench\n"
                         "    in: quant\n"
                         "    with: {mode: decode, prompt_tokens: [8, 8]}\n",
           11, "'prompt_tokens' names 8 twice", "once");
    refuse(QUANT_OF("4") "  - id: bench\n"
                         "    use: deploy-bench\n"
                         "    in: quant\n"
                         "    with: {mode: decode, output_tokens: [8, 8]}\n",
           11, "'output_tokens' names 8 twice", "once");
    refuse(QUANT_OF("4") "  - id: bench\n"
                         "    use: deploy-bench\n"
                         "    in: quant\n"
                         "    with: {mode: decode, against: [dense-fp16, dense-fp16]}\n",
           11, "'against' names 'dense-fp16' twice", "once");
    refuse(QUANT_OF("4") "  - id: bench\n"
                         "    use: deploy-bench\n"
                         "    in: quant\n"
                         "    with: {mode: decode, output_tokens: []}\n",
           11, "'output_tokens' must name at least one", "leave the parameter out");
    refuse(QUANT_OF("8") "  - id: bench\n"
                         "    use: deploy-bench\n"
                         "    in: quant\n"
                         "    with: {mode: decode}\n",
           10,
           "the CUDA runtime takes weights of 2 to 4 bits, activations of 4, keys and values "
           "of 4 or 16, not 8, 4 and 4",
           "quantise with weight_bits: 4");
    refuse(QUANT_OF("4") "  - id: bench\n"
                         "    use: deploy-bench\n"
                         "    in: quant\n"
                         "    with: {mode: decode, energy: rapl}\n",
           11, "meter 'rapl' does not see a GPU", "auto takes a meter of the job's device");
    refuse(QUANT_OF("4") "  - id: bench\n"
                         "    use: deploy-bench\n"
                         "    in: quant\n"
                         "    with: {mode: decode, energy: nvml}\n"
                         "device: cpu\n",
           11, "meter 'nvml' does not see the CPU", "auto takes a meter of the job's device");
    refuse(QUANT_OF("4") "  - id: bench\n"
                         "    use: deploy-bench\n"
                         "    in: quant\n"
                         "    with: {mode: decode, areas: 1x1}\n"
                         "device: cpu\n",
           11, "'areas' is about CUDA devices; on the CPU a model decodes as it is encoded",
           "set 'device' to cuda:0");
}

static void test_plan__learned_positions_have_an_end(void **state)
{
    (void)state;
    struct espl_model_config config = prune_opt_config();
    struct planned planned;
    char stages[512];
    config.ffn = 40; /* groups of 8 */
    (void)snprintf(stages, sizeof stages,
                   QUANT_OF("4") "  - id: bench\n"
                                 "    use: deploy-bench\n"
                                 "    in: quant\n"
                                 "    with: {mode: decode, prompt_tokens: 2, output_tokens: [4, "
                                 "%" PRIu64 "]}\n",
                   config.max_positions - 1);
    plan_expect_refusal(registry, &config, 11, 16, stages, 11,
                        "65 tokens of prompt and output are more than the model's 64 learned "
                        "positions",
                        "shorten the longest prompt");
    (void)snprintf(stages, sizeof stages,
                   QUANT_OF("4") "  - {id: bench, use: deploy-bench, in: quant, with: {mode: "
                                 "decode, prompt_tokens: 2, output_tokens: [4, %" PRIu64 "]}}\n",
                   config.max_positions - 2);
    plan_stages(&planned, registry, &config, 11, 16, stages);
    plan_expect_clean(&planned);
    plan_free(&planned);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_plan__notes_what_is_measured),
        cmocka_unit_test(test_plan__notes_what_decodes),
        cmocka_unit_test(test_plan__cpu_keeps_linears_in_float),
        cmocka_unit_test(test_plan__says_what_runs_on_the_cpu),
        cmocka_unit_test(test_plan__refusals),
        cmocka_unit_test(test_plan__refusals_of_decoding),
        cmocka_unit_test(test_plan__learned_positions_have_an_end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
