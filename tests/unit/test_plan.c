/* Graph, kinds, cycles, keys, selection, resources and JSON of the planner. */
#include "engine/plan.h"

#include "engine_fakes.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static char folder[ESPL_PATH_MAX];
static char weights[ESPL_PATH_MAX + 32];
static struct espl_store store;

static int set_up(void **state)
{
    (void)state;
    char root[ESPL_PATH_MAX + 32];
    fakes_reset();
    fakes_make_folder(folder);
    (void)snprintf(weights, sizeof weights, "%s/weights.bin", folder);
    (void)snprintf(root, sizeof root, "%s/results", folder);
    fakes_write(weights, "weights!\n");
    return espl_store_open_readonly(root, &store, NULL) == ESPL_OK ? 0 : -1;
}

static int tear_down(void **state)
{
    (void)state;
    fakes_remove_folder(folder);
    return 0;
}

/* dense -> prune -> eval, with calib; `lines` come after the stages. */
static struct espl_job *chain_job(const char *prune_with, const char *lines)
{
    char text[8192];
    (void)snprintf(
        text, sizeof text,
        "version: 1\nname: chain\nseed: 42\nstages:\n"
        "  - {id: dense, use: import, with: {checkpoint: %s, dtype: f16}}\n"
        "  - {id: calib, use: tokens, with: {samples: 8, sequence_length: 64}}\n"
        "  - {id: prune, use: wanda-prune, in: {model: dense, tokens: calib}, with: %s}\n"
        "  - {id: eval, use: evaluate, in: {model: prune, tokens: calib, base: dense}}\n"
        "%s",
        weights, prune_with, lines);
    return fakes_job(text, NULL, 0);
}

static void test_keys__are_the_documented_hash(void **state)
{
    (void)state;
    /* Computed with Python's hashlib from the recipe in engine/plan_key.c: SHA-256 over
     * "espl-key-1" and the fields below, each text preceded by its length in 8 little-endian bytes.
     *   dense: stage import, cache_version 1, parameter arch auto, parameter dtype f16,
     *          file weights 0 = sha256("weights!\n")        (checkpoint: path; storage: NO_HASH)
     *   calib: stage tokens, cache_version 3, parameter samples 8, parameter sequence_length 64
     *   prune: stage wanda-prune, cache_version 2, parameters budget 5000000000B, fast false,
     *          group_size 128, patience 0.045s, pattern 2:4, sparsity 0.5, targets ["*"], seed 42,
     *          input model <dense>, input tokens <calib>     (note, widths: absent)
     *   eval:  stage evaluate, cache_version 1, device "test gpu", input model <prune>,
     *          input tokens <calib>, input base <dense>
     * A change here makes every stored result of every user unreachable. */
    const struct espl_plan_options options = {.device_fingerprint = "test gpu"};
    struct espl_job *job = chain_job("{pattern: 2:4}", "");
    struct espl_plan *plan = fakes_plan(job, &store, &options);
    assert_string_equal(fakes_find(plan, "dense")->key,
                        "7457caed93c7bb048996540e4217755b84e443112041a62efae8ba353b555a08");
    assert_string_equal(fakes_find(plan, "calib")->key,
                        "020d49e63510426ef5557acde088f2659536e6aeea3095b691e88f9009feb83a");
    assert_string_equal(fakes_find(plan, "prune")->key,
                        "8e537e95db6aa9b1572cf2d9cc87649be6e7a46728eb072f0ed438b337c6e7de");
    assert_string_equal(fakes_find(plan, "eval")->key,
                        "ece3396ef44fbbfeca0863f1c04ea84f2ecf6a4644a4a762c6ede40478acdd18");
    espl_plan_free(plan);
    espl_job_free(job);
    /* One of several outputs: stage export, cache_version 1, parameter folder o,
     * input model <key of split>.left */
    job = fakes_job("version: 1\nname: t\nstages:\n  - {id: h, use: split}\n"
                    "  - {id: o, use: export, in: h.left, with: {folder: o}}\n",
                    NULL, 0);
    plan = fakes_plan(job, &store, NULL);
    assert_string_equal(fakes_find(plan, "o")->key,
                        "34cad66d2de13eecee62008e23f88138bd0b2c334316662d4a78ac5cb08e1b21");
    espl_plan_free(plan);
    espl_job_free(job);
}

static void prune_key(const char *with, const char *seed, char key[ESPL_SHA256_HEX])
{
    char text[8192];
    (void)snprintf(text, sizeof text,
                   "stages:\n"
                   "  - {use: wanda-prune, with: %s, in: {tokens: c.tokens, model: d}, id: p}\n"
                   "  - {id: c, use: tokens, with: {sequence_length: 64, samples: 8}}\n"
                   "  - {id: d, use: import, with: {checkpoint: %s}}\n"
                   "seed: %s\nname: other\nversion: 1\n",
                   with, weights, seed);
    struct espl_job *job = fakes_job(text, NULL, 0);
    struct espl_plan *plan = fakes_plan(job, &store, NULL);
    (void)snprintf(key, ESPL_SHA256_HEX, "%s", fakes_find(plan, "p")->key);
    espl_plan_free(plan);
    espl_job_free(job);
}

static void test_keys__spelling_and_order_do_not_matter(void **state)
{
    (void)state;
    static const char *const rows[][3] = {
        {"sparsity: 0.1", "sparsity: 1e-1", "sparsity: +0.10"},
        {"pattern: 2:4", "pattern: \"2:4\"", "'pattern': '2:4'"},
        {"targets: [a, b]", "targets: [\"a\", b]", "targets: ['a', 'b',]"},
        {"budget: 1GiB", "budget: 1024 MiB", "budget: 1073741824B"},
        {"patience: 45ms", "patience: 0.045s", "patience: 45000us"},
        {"note: ~", "group_size: 128", "fast: FALSE"}, /* all say nothing new */
    };
    enum { ROWS = sizeof rows / sizeof rows[0] };
    char first[ESPL_SHA256_HEX] = "";
    /* 18 spellings times rotations of the order. */
    for (size_t turn = 0; turn < 3 * ROWS; turn++) {
        char with[1024] = "{";
        char key[ESPL_SHA256_HEX];
        for (size_t i = 0; i < ROWS; i++) {
            const size_t row = (i + turn) % ROWS;
            const size_t len = strlen(with);
            (void)snprintf(with + len, sizeof with - len, "%s%s", i > 0 ? ", " : "",
                           rows[row][(turn * 7 + row) % 3]);
        }
        (void)snprintf(with + strlen(with), sizeof with - strlen(with), "}");
        prune_key(with, "1", key);
        if (turn == 0) {
            (void)snprintf(first, sizeof first, "%s", key);
        }
        assert_string_equal(key, first);
    }
}

static void test_keys__every_change_of_meaning_matters(void **state)
{
    (void)state;
    static const char *const withs[] = {
        "{}",           "{sparsity: 0.51}",  "{pattern: 2:4}", "{pattern: 4:8}",
        "{note: x}",    "{targets: [a, b]}", "{fast: true}",   "{targets: ['a\",\"b']}",
        "{widths: [1]}"};
    enum { COUNT = sizeof withs / sizeof withs[0] + 2 };
    char keys[COUNT][ESPL_SHA256_HEX];
    for (size_t i = 0; i + 2 < COUNT; i++) {
        prune_key(withs[i], "1", keys[i]);
    }
    prune_key("{}", "2", keys[COUNT - 2]);
    fakes_write(weights, "other weights\n");
    prune_key("{}", "1", keys[COUNT - 1]);
    for (size_t i = 0; i < COUNT; i++) {
        for (size_t j = 0; j < i; j++) {
            assert_string_not_equal(keys[i], keys[j]);
        }
    }
}

static void test_keys__paths_and_unhashed_parameters_do_not_matter(void **state)
{
    (void)state;
    char copy[ESPL_PATH_MAX + 32];
    char text[2 * ESPL_PATH_MAX + 512];
    (void)snprintf(copy, sizeof copy, "%s/copy.bin", folder);
    fakes_write(copy, "weights!\n");
    (void)snprintf(text, sizeof text,
                   "version: 1\nname: t\nstages:\n"
                   "  - {id: a, use: import, with: {checkpoint: %s}}\n"
                   "  - {id: b, use: import, with: {checkpoint: %s, storage: copy}}\n",
                   weights, copy);
    struct espl_job *job = fakes_job(text, NULL, 0);
    struct espl_plan *plan = fakes_plan(job, &store, NULL);
    assert_string_equal(plan->stages[0].key, plan->stages[1].key);
    espl_plan_free(plan);
    espl_job_free(job);
}

static void test_order__file_order_where_possible(void **state)
{
    (void)state;
    struct espl_job *job =
        fakes_job("version: 1\nname: t\nstages:\n"
                  "  - {id: z, use: export, in: p, with: {folder: o}}\n"
                  "  - {id: p, use: wanda-prune, in: {model: h.left, tokens: c}}\n"
                  "  - {id: y, use: tokens}\n"
                  "  - {id: c, use: tokens}\n"
                  "  - {id: h, use: split}\n",
                  NULL, 0);
    struct espl_plan *plan = fakes_plan(job, &store, NULL);
    static const char *const expected[] = {"y", "c", "h", "p", "z"};
    assert_int_equal(plan->stage_count, 5);
    for (size_t i = 0; i < 5; i++) {
        assert_string_equal(plan->stages[i].job_stage->id, expected[i]);
    }
    assert_int_equal(fakes_find(plan, "p")->input_stage[0], 2);
    assert_int_equal(fakes_find(plan, "p")->input_stage[1], 1);
    espl_plan_free(plan);
    espl_job_free(job);
}

static void test_errors__kind(void **state)
{
    (void)state;
    struct espl_job *job = fakes_job("version: 1\nname: t\nstages:\n"
                                     "  - {id: c, use: tokens}\n"
                                     "  - {id: h, use: split}\n"
                                     "  - {id: o, use: export, in: c, with: {folder: o}}\n"
                                     "  - id: p\n"
                                     "    use: wanda-prune\n"
                                     "    in: {model: h.left, tokens: h.left}\n",
                                     NULL, 0);
    assert_null(fakes_plan_errors(
        job, &store, NULL,
        "job.yaml:6:30: error: input 'model' of 'o' needs kind model.dense/1 or model.masked/1, "
        "but "
        "'c' makes tokens/1\n"
        "    6 |   - {id: o, use: export, in: c, with: {folder: o}}\n"
        "      |                              ^\n"
        "help: these stages make model.dense/1 or model.masked/1: import, wanda-prune, split\n"
        "\n"
        "job.yaml:9:33: error: input 'tokens' of 'p' needs kind tokens/1, but 'h' makes "
        "model.dense/1\n"
        "    9 |     in: {model: h.left, tokens: h.left}\n"
        "      |                                 ^^^^^^\n"
        "help: these stages make tokens/1: tokens, split\n"
        "\n"
        "2 errors\n"));
    espl_job_free(job);
}

static void test_errors__cycles(void **state)
{
    (void)state;
    struct espl_job *job = fakes_job("version: 1\nname: t\nstages:\n"
                                     "  - {id: c, use: tokens}\n"
                                     "  - id: quant\n"
                                     "    use: wanda-prune\n"
                                     "    in: {model: reorder, tokens: c}\n"
                                     "  - id: reorder\n"
                                     "    use: wanda-prune\n"
                                     "    in: {model: quant, tokens: c}\n"
                                     "  - id: after\n"
                                     "    use: wanda-prune\n"
                                     "    in: {model: reorder, tokens: c}\n"
                                     "  - id: self\n"
                                     "    use: wanda-prune\n"
                                     "    in: {model: self, tokens: c}\n",
                                     NULL, 0);
    assert_null(fakes_plan_errors(job, &store, NULL,
                                  "job.yaml:7:17: error: stages form a cycle: quant -> reorder -> "
                                  "quant\n"
                                  "    7 |     in: {model: reorder, tokens: c}\n"
                                  "      |                 ^^^^^^^ 'quant' needs 'reorder'\n"
                                  "   10 |     in: {model: quant, tokens: c}\n"
                                  "      |                 ^^^^^ 'reorder' needs 'quant'\n"
                                  "help: take one of these connections away\n"
                                  "\n"
                                  "job.yaml:16:17: error: stages form a cycle: self -> self\n"
                                  "   16 |     in: {model: self, tokens: c}\n"
                                  "      |                 ^^^^ 'self' needs 'self'\n"
                                  "help: take one of these connections away\n"
                                  "\n"
                                  "2 errors\n"));
    espl_job_free(job);
}

static void test_hooks__errors_are_placed_and_block_what_follows(void **state)
{
    (void)state;
    struct espl_job *job =
        fakes_job("version: 1\nname: t\nstages:\n"
                  "  - id: dense\n"
                  "    use: import\n"
                  "    with: {checkpoint: nothing/here}\n"
                  "  - {id: c, use: tokens}\n"
                  "  - {id: p, use: wanda-prune, in: {model: dense, tokens: c}}\n"
                  "  - {id: h, use: split}\n"
                  "  - {id: q, use: wanda-prune, in: {model: h.left, tokens: c}}\n",
                  NULL, 0);
    struct espl_plan *plan =
        fakes_plan_errors(job, &store, NULL,
                          "job.yaml:6:24: error: cannot find checkpoint 'nothing/here'\n"
                          "    6 |     with: {checkpoint: nothing/here}\n"
                          "      |                        ^^^^^^^^^^^^\n");
    assert_non_null(plan);
    assert_int_equal(fakes_find(plan, "dense")->state, ESPL_PLAN_BLOCKED);
    assert_string_equal(fakes_find(plan, "dense")->why, "cannot find checkpoint 'nothing/here'");
    assert_int_equal(fakes_find(plan, "p")->state, ESPL_PLAN_BLOCKED);
    assert_string_equal(fakes_find(plan, "p")->why, "input 'dense' is blocked");
    assert_false(fakes_find(plan, "p")->key_known);
    assert_int_equal(fakes_find(plan, "q")->state, ESPL_PLAN_RUN);
    espl_plan_free(plan);
    espl_job_free(job);
}

static void test_hooks__blame_finds_the_place(void **state)
{
    (void)state;
    static const char line[] =
        "  - {id: p, use: wanda-prune, in: {model: h.left, tokens: c}, with: "
        "{sparsity: 0.5}}";
    /* blame -> the word of the line that is pointed at; NULL: the option. A default has no place of
     * its own, so the stage's name stands for it. */
    static const char *const cases[][2] = {
        {"param:targets", "wanda-prune"}, {"input:tokens", "c}"},   {"", "wanda-prune"},
        {"param:sparsity", "0.5"},        {"param:pattern", NULL},  {"param:none", "wanda-prune"},
        {"input:model", "h.left"},        {"other", "wanda-prune"},
    };
    const struct espl_override override = {.path = "p.pattern", .value = "1:4"};
    char source[512];
    (void)snprintf(source, sizeof source,
                   "version: 1\nname: t\nstages:\n  - {id: c, use: tokens}\n"
                   "  - {id: h, use: split}\n%s\n",
                   line);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct espl_job *job = fakes_job(source, &override, 1);
        struct espl_diagnostics diags;
        struct espl_error err = {0};
        struct espl_plan *plan = NULL;
        fake_settings.fail_blame = cases[i][0];
        assert_int_equal(espl_diagnostics_init(&diags, &err), ESPL_OK);
        assert_int_equal(espl_plan_build(job, &store, NULL, &diags, &plan, &err), ESPL_E_JOB);
        assert_int_equal(diags.count, 1);
        const struct espl_srcpos *at = &diags.items[0].error.at;
        if (cases[i][1] == NULL) {
            assert_string_equal(at->file, "--set p.pattern");
            assert_int_equal(at->line, 0);
        } else {
            assert_int_equal(at->line, 6);
            assert_int_equal(at->column, strstr(line, cases[i][1]) - line + 1);
        }
        espl_diagnostics_free(&diags);
        espl_plan_free(plan);
        espl_job_free(job);
    }
}

static void test_hooks__see_descriptions_and_warn(void **state)
{
    (void)state;
    struct espl_job *job = chain_job("{}", "");
    struct espl_plan *plan = fakes_plan(job, &store, NULL);
    const struct espl_plan_stage *prune = fakes_find(plan, "prune");
    /* fake_import predicts {"layers": 2}; fake_prune puts it into its note. */
    assert_string_equal(prune->estimate.note, "2 layers");
    assert_string_equal(prune->warnings, "slow on this machine");
    assert_null(prune->descriptions[0]);
    assert_non_null(fakes_find(plan, "dense")->descriptions[0]);
    espl_plan_free(plan);
    espl_job_free(job);
}

static void test_select__from_and_until(void **state)
{
    (void)state;
    struct espl_job *job = chain_job("{}", "  - {id: out, use: export, in: prune, with: {folder: "
                                           "o}}\n");
    const struct espl_plan_options until = {.until = "prune"};
    struct espl_plan *plan = fakes_plan(job, &store, &until);
    assert_int_equal(fakes_find(plan, "dense")->state, ESPL_PLAN_RUN);
    assert_int_equal(fakes_find(plan, "prune")->state, ESPL_PLAN_RUN);
    assert_int_equal(fakes_find(plan, "eval")->state, ESPL_PLAN_SKIPPED);
    assert_string_equal(fakes_find(plan, "eval")->why, "left out by --until");
    assert_int_equal(fakes_find(plan, "out")->state, ESPL_PLAN_SKIPPED);
    espl_plan_free(plan);
    /* Nothing is stored: what is left out is missed. */
    const struct espl_plan_options from = {.from = "prune", .until = "prune"};
    plan = fakes_plan_errors(job, &store, &from,
                             "job.yaml:7:47: error: 'prune' must run, but its input 'dense' has no "
                             "result and --from leaves it out\n"
                             "    7 |   - {id: prune, use: wanda-prune, in: {model: dense, tokens: "
                             "calib}, with: {}}\n"
                             "      |                                               ^^^^^\n"
                             "help: use --from dense, or leave --from away\n");
    espl_plan_free(plan);
    espl_job_free(job);
}

static void test_select__unknown_ids(void **state)
{
    (void)state;
    static const char *const force[] = {"prune", "evol"};
    const struct espl_plan_options options = {
        .from = "prunne", .until = "zzz", .force = force, .force_count = 2};
    struct espl_job *job = chain_job("{}", "");
    assert_null(fakes_plan_errors(job, &store, &options,
                                  "--force: error: the job has no stage 'evol'\n"
                                  "help: did you mean 'eval'?\n"
                                  "\n"
                                  "--from: error: the job has no stage 'prunne'\n"
                                  "help: did you mean 'prune'?\n"
                                  "\n"
                                  "--until: error: the job has no stage 'zzz'\n"
                                  "help: its stages: dense, calib, prune, eval\n"
                                  "\n"
                                  "3 errors\n"));
    espl_job_free(job);
}

static enum espl_status no_gpu(void *user, const char *device, const char *stage, bool device_only,
                               struct espl_error *err)
{
    (void)user;
    assert_null(stage); /* none of the fakes runs on the device */
    assert_false(device_only);
    (void)espl_fail(err, ESPL_E_MACHINE, "device '%s' is not available: no CUDA driver", device);
    return espl_hint(err, "use --device cpu");
}

static void test_resources__missing_ones_are_named(void **state)
{
    (void)state;
    struct espl_job *job =
        fakes_job("version: 1\nname: t\ndevice: cuda:0\n"
                  "limits: {host_memory: 1GiB, scratch: 1GiB}\n"
                  "stages:\n"
                  "  - {id: c, use: tokens}\n"
                  "  - {id: h, use: split}\n"
                  "  - {id: a, use: wanda-prune, in: {model: h.left, tokens: c}}\n"
                  "  - {id: b, use: wanda-prune, in: {model: a, tokens: c}}\n",
                  NULL, 0);
    fake_settings.host_bytes = (uint64_t)3 << 30;
    fake_settings.output_bytes = (uint64_t)2 << 30;
    fake_settings.scratch_bytes = (uint64_t)3 << 29;
    const struct espl_plan_options options = {.host_bytes_free = (uint64_t)2 << 30,
                                              .disk_bytes_free = (uint64_t)4 << 30,
                                              .check_device = no_gpu};
    struct espl_plan *plan = fakes_plan(job, &store, &options);
    assert_false(plan->resources_ok);
    assert_int_equal(plan->host_bytes_needed, (uint64_t)3 << 30);
    /* b: 2 GiB from a, 2 GiB of its own, 1.5 GiB scratch */
    assert_int_equal(plan->disk_bytes_needed, (uint64_t)11 << 29);
    struct espl_diagnostics diags;
    struct espl_buf text;
    espl_buf_init(&text, 1 << 16);
    assert_int_equal(espl_diagnostics_init(&diags, NULL), ESPL_OK);
    assert_int_equal(espl_diagnostics_set_source(&diags, job->file, job->text, job->text_len, NULL),
                     ESPL_OK);
    for (size_t i = 0; i < plan->resource_error_count; i++) {
        espl_diagnostics_render_error(&diags, &plan->resource_errors[i], false, &text);
    }
    char expected[4 * ESPL_PATH_MAX];
    (void)snprintf(
        expected, sizeof expected,
        "error: not enough memory for stage 'a': needs 3.0 GiB, 2.0 GiB available\n"
        "help: free memory, or run the job on a larger machine\n"
        "job.yaml:4:23: error: stage 'a' needs 3.0 GiB of memory, limits.host_memory allows 1.0 "
        "GiB\n"
        "    4 | limits: {host_memory: 1GiB, scratch: 1GiB}\n"
        "      |                       ^^^^\n"
        "help: raise the limit: --set limits.host_memory=...\n"
        "job.yaml:4:38: error: stage 'a' needs 1.5 GiB of scratch space, limits.scratch allows 1.0 "
        "GiB\n"
        "    4 | limits: {host_memory: 1GiB, scratch: 1GiB}\n"
        "      |                                      ^^^^\n"
        "help: raise the limit: --set limits.scratch=...\n"
        "error: not enough disk space for stage 'b': needs 5.5 GiB (2.0 GiB result + 1.5 GiB "
        "scratch + 2.0 GiB earlier results), 4.0 GiB free in '%s'\n"
        "help: `espalier gc` shows what can be deleted; or use --store on another disk\n"
        "job.yaml:3:9: error: device 'cuda:0' is not available: no CUDA driver\n"
        "    3 | device: cuda:0\n"
        "      |         ^^^^^^\n"
        "help: use --device cpu\n",
        store.root);
    assert_string_equal(espl_buf_text(&text), expected);
    espl_buf_free(&text);
    espl_diagnostics_free(&diags);
    espl_plan_free(plan);
    espl_job_free(job);
}

static void test_resources__huge_estimates_do_not_wrap(void **state)
{
    (void)state;
    struct espl_job *job = chain_job("{}", "");
    fake_settings.output_bytes = UINT64_MAX;
    fake_settings.scratch_bytes = UINT64_MAX;
    struct espl_plan *plan = fakes_plan(job, &store, NULL);
    assert_false(plan->resources_ok);
    assert_int_equal(plan->disk_bytes_needed, UINT64_MAX);
    espl_plan_free(plan);
    espl_job_free(job);
    fakes_reset();
    job = chain_job("{}", "");
    plan = fakes_plan(job, &store, NULL);
    assert_true(plan->resources_ok);
    assert_true(plan->host_bytes_free > 0);
    assert_true(plan->disk_bytes_free > 0);
    espl_plan_free(plan);
    espl_job_free(job);
}

static double history(void *user, const char *stage_name, const struct espl_estimate *est)
{
    (void)user;
    (void)est;
    return strcmp(stage_name, "tokens") == 0 ? 1.5 : -1.0;
}

static void test_json__whole_object(void **state)
{
    (void)state;
    const struct espl_plan_options options = {
        .host_bytes_free = 10, .disk_bytes_free = 20, .history = history};
    struct espl_job *job =
        fakes_job("version: 1\nname: t\nstages:\n  - {id: c, use: tokens}\n", NULL, 0);
    struct espl_plan *plan = fakes_plan(job, &store, &options);
    json_t *object = espl_plan_json(plan);
    char *text = json_dumps(object, JSON_COMPACT);
    char expected[4096];
    (void)snprintf(
        expected, sizeof expected,
        "{\"schema\":\"espalier.plan/1\",\"job\":\"t\",\"job_file\":\"job.yaml\",\"job_sha256\":"
        "\"%s\",\"seed\":0,\"device\":\"auto\",\"stages\":[{\"id\":\"c\",\"use\":\"tokens\","
        "\"state\":\"run\",\"why\":\"never run\",\"key\":\"%s\",\"has_result\":false,"
        "\"units_done\":0,\"seconds\":1.5,\"estimate\":{\"host_bytes\":0,\"device_bytes\":0,"
        "\"scratch_bytes\":0,\"output_bytes\":0,\"units\":0,\"flop\":0.0,\"note\":\"\"},"
        "\"inputs\":[],\"outputs\":[{\"port\":\"tokens\",\"kind\":\"tokens/1\",\"description\":"
        "null}],\"params\":{\"samples\":0,\"sequence_length\":0},\"param_origins\":{\"samples\":"
        "\"default\",\"sequence_length\":\"default\"},\"hash_fields\":[[\"stage\",\"tokens\"],"
        "[\"cache_version\",\"3\"],[\"parameter samples\",\"0\"],[\"parameter sequence_length\","
        "\"0\"]],\"warnings\":[]}],\"counts\":{\"cached\":0,\"resume\":0,\"run\":1,\"blocked\":0,"
        "\"skipped\":0},\"resources\":{\"ok\":true,\"host_bytes_needed\":0,\"host_bytes_free\":10,"
        "\"device_bytes_needed\":0,\"disk_bytes_needed\":0,\"disk_bytes_free\":20,\"errors\":[]}}",
        job->sha256, plan->stages[0].key);
    assert_string_equal(text, expected);
    free(text);
    json_decref(object);
    espl_plan_free(plan);
    espl_job_free(job);
}

static void test_plan__creates_nothing(void **state)
{
    (void)state;
    struct espl_job *job = chain_job("{}", "");
    struct espl_plan *plan = fakes_plan(job, &store, NULL);
    assert_false(espl_fs_exists(store.root));
    espl_plan_free(plan);
    espl_job_free(job);
}

int main(void)
{
    espl_artifact_library_init();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_keys__are_the_documented_hash, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_keys__spelling_and_order_do_not_matter, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(test_keys__every_change_of_meaning_matters, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(test_keys__paths_and_unhashed_parameters_do_not_matter,
                                        set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_order__file_order_where_possible, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_errors__kind, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_errors__cycles, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_hooks__errors_are_placed_and_block_what_follows,
                                        set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_hooks__blame_finds_the_place, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_hooks__see_descriptions_and_warn, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_select__from_and_until, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_select__unknown_ids, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_resources__missing_ones_are_named, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_resources__huge_estimates_do_not_wrap, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(test_json__whole_object, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_plan__creates_nothing, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
