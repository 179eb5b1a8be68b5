#include "engine/job.h"

#include "engine_fakes.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char whole_job[] = "version: 1\n"
                                "name: chain\n"
                                "seed: 42\n"
                                "device: cuda:0\n"
                                "limits: {host_memory: 48GiB, scratch: 1.5 GB}\n"
                                "stages:\n"
                                "  - id: dense\n"
                                "    use: import\n"
                                "    with: {checkpoint: models/x, dtype: f16}\n"
                                "  - id: calib\n"
                                "    use: tokens\n"
                                "    with: {samples: 8, sequence_length: 64}\n"
                                "  - id: prune\n"
                                "    use: wanda-prune\n"
                                "    in: {tokens: calib, model: dense.model}\n"
                                "    with:\n"
                                "      pattern: 2:4\n"
                                "      note: \"a: \\\"b\\\"\\n\\u2028# c\"\n"
                                "  - id: eval\n"
                                "    use: evaluate\n"
                                "    in: {model: prune, tokens: {file: t.h5}, base: dense}\n"
                                "    expect:\n"
                                "      perplexity: {max: 12.5}\n"
                                "      latency: {min: 1us, max: 45ms}\n"
                                "  - id: out\n"
                                "    use: export\n"
                                "    in: prune\n"
                                "    with: {folder: out dir}\n";

/* A job around the lines of one stage, which start on line 4. */
static void expect_stage_errors(const char *lines, const char *expected)
{
    char text[2048];
    (void)snprintf(text, sizeof text,
                   "version: 1\nname: t\nstages:\n%s"
                   "  - id: dense\n    use: import\n    with: {checkpoint: x}\n"
                   "  - id: calib\n    use: tokens\n"
                   "  - id: halves\n    use: split\n",
                   lines);
    fakes_expect_errors(text, NULL, 0, expected);
}

static void test_parse__whole_job(void **state)
{
    (void)state;
    struct espl_job *job = fakes_job(whole_job, NULL, 0);
    assert_string_equal(job->name, "chain");
    assert_int_equal(job->seed, 42);
    assert_string_equal(job->device, "cuda:0");
    assert_int_equal(job->device_at.line, 4);
    assert_int_equal(job->device_at.column, 9);
    assert_int_equal(job->limit_host_memory, (uint64_t)48 << 30);
    assert_int_equal(job->limit_scratch, 1500000000);
    assert_int_equal(job->limit_scratch_at.line, 5);
    assert_int_equal(job->stage_count, 5);
    assert_string_equal(job->stages[4].id, "out");
    /* `printf '<the text>' | sha256sum` is what a user can compare with. */
    char hex[ESPL_SHA256_HEX];
    assert_int_equal(espl_sha256_bytes(whole_job, sizeof whole_job - 1, hex, NULL), ESPL_OK);
    assert_string_equal(job->sha256, hex);
    const struct fake_import_params *import = job->stages[0].params;
    assert_string_equal(import->checkpoint, "models/x");
    assert_int_equal(import->dtype, FAKE_DTYPE_F16);
    espl_job_free(job);
}

static void test_parse__connections(void **state)
{
    (void)state;
    struct espl_job *job = fakes_job(whole_job, NULL, 0);
    const struct espl_job_stage *prune = espl_job_find(job, "prune");
    assert_int_equal(prune->input_count, 2);
    /* In the order of the port table; naming the only output changes nothing. */
    assert_string_equal(prune->inputs[0].port, "model");
    assert_string_equal(prune->inputs[0].stage_id, "dense");
    assert_string_equal(prune->inputs[0].output_port, "");
    assert_string_equal(prune->inputs[1].port, "tokens");
    assert_int_equal(prune->inputs[0].at.line, 15);
    assert_int_equal(prune->inputs[0].at.column, 32);
    const struct espl_job_stage *eval = espl_job_find(job, "eval");
    assert_int_equal(eval->input_count, 3);
    assert_string_equal(eval->inputs[1].file, "t.h5");
    assert_null(eval->inputs[1].stage_id);
    const struct espl_job_stage *out = espl_job_find(job, "out");
    assert_string_equal(out->inputs[0].port, "model");
    assert_null(espl_job_find(job, "nothing"));
    espl_job_free(job);
}

static void test_parse__expectations(void **state)
{
    (void)state;
    struct espl_job *job = fakes_job(whole_job, NULL, 0);
    const struct espl_job_stage *eval = espl_job_find(job, "eval");
    assert_int_equal(eval->expect_count, 2);
    assert_string_equal(eval->expects[0].metric, "perplexity");
    assert_false(eval->expects[0].has_min);
    assert_true(eval->expects[0].has_max);
    assert_true(eval->expects[0].max == 12.5);
    assert_int_equal(eval->expects[0].at.line, 23);
    assert_int_equal(eval->expects[0].at.column, 7);
    assert_true(eval->expects[1].min == 1e-6);
    assert_true(eval->expects[1].max == 0.045);
    espl_job_free(job);
}

static void test_parse__outputs_by_name(void **state)
{
    (void)state;
    struct espl_job *job = fakes_job("version: 1\nname: t\nstages:\n"
                                     "  - {id: h, use: split}\n"
                                     "  - {id: p, use: wanda-prune, in: {model: h.left, tokens: "
                                     "h.words}}\n",
                                     NULL, 0);
    assert_string_equal(job->stages[1].inputs[0].output_port, "left");
    assert_string_equal(job->stages[1].inputs[1].output_port, "words");
    espl_job_free(job);
}

static void test_resolved__reads_back_to_the_same_job(void **state)
{
    (void)state;
    struct espl_buf first;
    struct espl_buf second;
    espl_buf_init(&first, 1 << 20);
    espl_buf_init(&second, 1 << 20);
    const struct espl_override overrides[] = {
        {.path = "prune.targets", .value = "[\"*.x\", 'y: z']"}, {.path = "seed", .value = "7"}};
    struct espl_job *job = fakes_job(whole_job, overrides, 2);
    espl_job_resolved_yaml(job, &first);
    assert_string_equal(espl_buf_text(&first), "version: 1\n"
                                               "name: chain\n"
                                               "seed: 7\n"
                                               "device: cuda:0\n"
                                               "limits:\n"
                                               "  host_memory: 51539607552B\n"
                                               "  scratch: 1500000000B\n"
                                               "stages:\n"
                                               "  - id: dense\n"
                                               "    use: import\n"
                                               "    with:\n"
                                               "      checkpoint: models/x\n"
                                               "      arch: auto\n"
                                               "      dtype: f16\n"
                                               "      storage: auto\n"
                                               "  - id: calib\n"
                                               "    use: tokens\n"
                                               "    with:\n"
                                               "      samples: 8\n"
                                               "      sequence_length: 64\n"
                                               "  - id: prune\n"
                                               "    use: wanda-prune\n"
                                               "    in:\n"
                                               "      model: dense\n"
                                               "      tokens: calib\n"
                                               "    with:\n"
                                               "      sparsity: 0.5\n"
                                               "      pattern: \"2:4\"\n"
                                               "      targets: [\"*.x\",\"y: z\"]\n"
                                               "      group_size: 128\n"
                                               "      budget: 5000000000B\n"
                                               "      patience: 0.045s\n"
                                               "      note: \"a: \\\"b\\\"\\u000a\\u2028# c\"\n"
                                               "      fast: false\n"
                                               "      widths: []\n"
                                               "  - id: eval\n"
                                               "    use: evaluate\n"
                                               "    in:\n"
                                               "      model: prune\n"
                                               "      tokens: {file: \"t.h5\"}\n"
                                               "      base: dense\n"
                                               "    expect:\n"
                                               "      perplexity: {max: 12.5}\n"
                                               "      latency: {min: 1e-6, max: 0.045}\n"
                                               "  - id: out\n"
                                               "    use: export\n"
                                               "    in:\n"
                                               "      model: prune\n"
                                               "    with:\n"
                                               "      folder: \"out dir\"\n");
    struct espl_job *again = fakes_job(espl_buf_text(&first), NULL, 0);
    espl_job_resolved_yaml(again, &second);
    assert_string_equal(espl_buf_text(&second), espl_buf_text(&first));
    assert_string_equal(((const struct fake_prune_params *)again->stages[2].params)->note,
                        "a: \"b\"\n\xe2\x80\xa8# c");
    espl_job_free(again);
    espl_job_free(job);
    espl_buf_free(&second);
    espl_buf_free(&first);
}

static void test_overrides__values_and_origin(void **state)
{
    (void)state;
    const struct espl_override overrides[] = {
        {.path = "prune.sparsity", .value = "0.7"},
        {.path = "prune.sparsity", .value = "0.6"},
        {.path = "prune.pattern", .value = "\"4:8\""},
        {.path = "dense.checkpoint", .value = "y"},
        {.path = "calib.samples", .value = "16"},
        {.path = "device", .value = "cpu"},
        {.path = "name", .value = "other"},
        {.path = "limits.host_memory", .value = "1GiB"},
        {.path = "limits.scratch", .value = "2GiB"},
        {.path = "prune.widths", .value = "[1, 2]"},
        {.path = "prune.note", .value = "a: b"},
    };
    struct espl_job *job = fakes_job(whole_job, overrides, sizeof overrides / sizeof overrides[0]);
    const struct espl_job_stage *prune = espl_job_find(job, "prune");
    const struct fake_prune_params *params = prune->params;
    assert_true(params->sparsity == 0.6); /* the last one wins */
    assert_int_equal(params->pattern.n, 4);
    assert_string_equal(params->note, "a: b");
    assert_int_equal(params->widths.count, 2);
    assert_int_equal(prune->values[0].origin, ESPL_ORIGIN_OVERRIDE);
    assert_string_equal(prune->values[0].at.file, "--set prune.sparsity");
    assert_int_equal(prune->values[0].at.line, 0);
    assert_int_equal(prune->values[3].origin, ESPL_ORIGIN_DEFAULT);
    assert_string_equal(job->device, "cpu");
    assert_string_equal(job->name, "other");
    assert_int_equal(job->limit_host_memory, (uint64_t)1 << 30);
    assert_int_equal(job->limit_scratch, (uint64_t)2 << 30);
    espl_job_free(job);
}

static void test_overrides__give_what_the_file_lacks(void **state)
{
    (void)state;
    const struct espl_override override = {.path = "dense.checkpoint", .value = "models/y"};
    struct espl_job *job =
        fakes_job("version: 1\nname: t\nstages:\n  - {id: dense, use: import}\n", &override, 1);
    assert_string_equal(((const struct fake_import_params *)job->stages[0].params)->checkpoint,
                        "models/y");
    espl_job_free(job);
}

static void test_overrides__errors(void **state)
{
    (void)state;
    const struct espl_override overrides[] = {
        {.path = "prun.sparsity", .value = "1"},
        {.path = "prune.sparsty", .value = "1"},
        {.path = "prune.group_size", .value = "8"},
        {.path = "sead", .value = "1"},
        {.path = "prune.widths", .value = "[1, "},
        {.path = "limits.memory", .value = "1GiB"},
        {.path = "seed", .value = "-1"},
    };
    fakes_expect_errors(
        whole_job, overrides, sizeof overrides / sizeof overrides[0],
        "--set limits.memory: error: unknown parameter 'memory' for 'limits'\n"
        "\n"
        "--set prun.sparsity: error: the job has no stage 'prun'\n"
        "help: did you mean 'prune'?\n"
        "\n"
        "--set prune.group_size: error: 'group_size' must be an integer from 16 to 1024, got 8\n"
        "\n"
        "--set prune.sparsty: error: unknown parameter 'sparsty' for stage 'prune' "
        "(wanda-prune)\n"
        "help: did you mean 'sparsity'?  `espalier stages wanda-prune` lists all parameters\n"
        "\n"
        "--set prune.widths: error: cannot read the value: not valid YAML: expected a value\n"
        "\n"
        "--set sead: error: unknown setting 'sead'\n"
        "help: did you mean 'seed'?\n"
        "\n"
        "--set seed: error: 'seed' must be an integer of at least 0, got '-1'\n"
        "\n"
        "7 errors\n");
}

static void test_errors__top_level(void **state)
{
    (void)state;
    fakes_expect_errors("{}\n", NULL, 0,
                        "job.yaml:1:1: error: the job has no 'name'\n"
                        "    1 | {}\n"
                        "      | ^\n"
                        "help: add a line 'name: my-job'\n"
                        "\n"
                        "job.yaml:1:1: error: the job has no 'stages'\n"
                        "    1 | {}\n"
                        "      | ^\n"
                        "help: add a list 'stages:' with items '- id: ...' and 'use: ...'\n"
                        "\n"
                        "job.yaml:1:1: error: the job has no 'version'\n"
                        "    1 | {}\n"
                        "      | ^\n"
                        "help: add a line 'version: 1'\n"
                        "\n"
                        "3 errors\n");
    fakes_expect_errors("version: 2\n"
                        "nam: t\n"
                        "name: T\n"
                        "seed: x\n"
                        "device: gpu\n"
                        "limits: {host_memory: 5}\n"
                        "stages: []\n",
                        NULL, 0,
                        "job.yaml:1:10: error: job format version '2' is not known\n"
                        "    1 | version: 2\n"
                        "      |          ^\n"
                        "help: this espalier reads version 1\n"
                        "\n"
                        "job.yaml:2:1: error: unknown key 'nam' in the job\n"
                        "    2 | nam: t\n"
                        "      | ^^^\n"
                        "help: did you mean 'name'?\n"
                        "\n"
                        "job.yaml:3:7: error: 'T' is not a valid job name\n"
                        "    3 | name: T\n"
                        "      |       ^\n"
                        "help: use a lower-case letter, then letters, digits, '-' or '_', at most "
                        "64 in all\n"
                        "\n"
                        "job.yaml:4:7: error: 'seed' must be an integer of at least 0, got 'x'\n"
                        "    4 | seed: x\n"
                        "      |       ^\n"
                        "\n"
                        "job.yaml:5:9: error: 'device' must be auto, cpu or cuda:N, got 'gpu'\n"
                        "    5 | device: gpu\n"
                        "      |         ^^^\n"
                        "help: cuda:0 is the first GPU\n"
                        "\n"
                        "job.yaml:6:23: error: 'host_memory' must be a size with its unit, got 5\n"
                        "    6 | limits: {host_memory: 5}\n"
                        "      |                       ^\n"
                        "help: write a number and B, kB, MB, GB, TB, KiB, MiB, GiB or TiB, for "
                        "example 5GB\n"
                        "\n"
                        "job.yaml:7:9: error: 'stages' must be a list of stages, got an empty one\n"
                        "    7 | stages: []\n"
                        "      |         ^^\n"
                        "\n"
                        "7 errors\n");
}

static void test_errors__stage_items(void **state)
{
    (void)state;
    expect_stage_errors(
        "  - just text\n"
        "  - use: tokens\n"
        "    wiht: {}\n"
        "  - id: Bad.id\n"
        "    use: token\n"
        "  - id: limits\n",
        "job.yaml:4:5: error: a stage is a mapping with 'id' and 'use', got a text\n"
        "    4 |   - just text\n"
        "      |     ^^^^^^^^^\n"
        "\n"
        "job.yaml:5:5: error: this stage has no 'id'\n"
        "    5 |   - use: tokens\n"
        "      |     ^\n"
        "help: give each stage a name: 'id: prune'\n"
        "\n"
        "job.yaml:6:5: error: unknown key 'wiht' in this stage\n"
        "    6 |     wiht: {}\n"
        "      |     ^^^^\n"
        "help: did you mean 'with'?\n"
        "\n"
        "job.yaml:7:9: error: 'Bad.id' is not a valid stage id\n"
        "    7 |   - id: Bad.id\n"
        "      |         ^^^^^^\n"
        "help: use a lower-case letter, then letters, digits, '-' or '_', at most "
        "64 in all\n"
        "\n"
        "job.yaml:8:10: error: unknown stage 'token'\n"
        "    8 |     use: token\n"
        "      |          ^^^^^\n"
        "help: did you mean 'tokens'?  `espalier stages` lists all stages\n"
        "\n"
        "job.yaml:9:5: error: this stage has no 'use'\n"
        "    9 |   - id: limits\n"
        "      |     ^\n"
        "help: `espalier stages` lists all stages\n"
        "\n"
        "job.yaml:9:9: error: 'limits' cannot be a stage id: --set limits.x means "
        "the limits of the job\n"
        "    9 |   - id: limits\n"
        "      |         ^^^^^^\n"
        "\n"
        "7 errors\n");
}

static void test_errors__missing_parameter_points_at_use(void **state)
{
    (void)state;
    expect_stage_errors("  - id: again\n    use: import\n",
                        "job.yaml:5:10: error: missing parameter 'checkpoint' for stage 'again' "
                        "(import)\n"
                        "    5 |     use: import\n"
                        "      |          ^^^^^^\n"
                        "help: add it under 'with:' (folder with the checkpoint)\n");
    /* A misspelt required parameter is one mistake. */
    expect_stage_errors("  - id: again\n    use: import\n    with: {chekpoint: x}\n",
                        "job.yaml:6:12: error: unknown parameter 'chekpoint' for stage 'again' "
                        "(import)\n"
                        "    6 |     with: {chekpoint: x}\n"
                        "      |            ^^^^^^^^^\n"
                        "help: did you mean 'checkpoint'?  `espalier stages import` lists all "
                        "parameters\n");
    expect_stage_errors("  - id: again\n    use: tokens\n    with: [1]\n",
                        "job.yaml:6:11: error: the parameters of stage 'again' (tokens) must be a "
                        "mapping, got a list\n"
                        "    6 |     with: [1]\n"
                        "      |           ^^^\n");
}

static void test_errors__duplicate_ids_show_both_places(void **state)
{
    (void)state;
    expect_stage_errors("  - id: calib\n    use: tokens\n",
                        "job.yaml:9:9: error: two stages have the id 'calib'\n"
                        "    9 |   - id: calib\n"
                        "      |         ^^^^^ again here\n"
                        "    4 |   - id: calib\n"
                        "      |         ^^^^^ first here\n");
}

static void test_errors__connections(void **state)
{
    (void)state;
    expect_stage_errors(
        "  - id: p\n"
        "    use: wanda-prune\n"
        "    in: {modle: dense, tokens: calb}\n"
        "  - id: q\n"
        "    use: export\n"
        "    in: dense.weights\n"
        "    with: {folder: o}\n"
        "  - id: r\n"
        "    use: export\n"
        "    in: halves\n"
        "    with: {folder: o}\n"
        "  - {id: s, use: export, in: [dense], with: {folder: o}}\n"
        "  - {id: t, use: tokens, in: dense}\n"
        "  - {id: u, use: export, in: {model: {path: x}}, with: {folder: o}}\n"
        "  - {id: v, use: wanda-prune, in: dense}\n",
        "job.yaml:6:10: error: unknown input 'modle' for stage 'p' (wanda-prune)\n"
        "    6 |     in: {modle: dense, tokens: calb}\n"
        "      |          ^^^^^\n"
        "help: did you mean 'model'?  its inputs: model, tokens\n"
        "\n"
        "job.yaml:6:32: error: input 'tokens' of 'p' names an unknown stage 'calb'\n"
        "    6 |     in: {modle: dense, tokens: calb}\n"
        "      |                                ^^^^\n"
        "help: did you mean 'calib'?\n"
        "\n"
        "job.yaml:9:9: error: 'dense' (import) has no output 'weights'\n"
        "    9 |     in: dense.weights\n"
        "      |         ^^^^^^^^^^^^^\n"
        "help: its outputs: model\n"
        "\n"
        "job.yaml:13:9: error: 'halves' (split) has several outputs\n"
        "   13 |     in: halves\n"
        "      |         ^^^^^^\n"
        "help: name one as halves.<output>: left, words\n"
        "\n"
        "job.yaml:15:30: error: 'in' must be a stage id or a mapping of inputs, got a list\n"
        "   15 |   - {id: s, use: export, in: [dense], with: {folder: o}}\n"
        "      |                              ^^^^^^^\n"
        "help: for example in: {model: <stage id>}\n"
        "\n"
        "job.yaml:16:30: error: stage 't' (tokens) takes no input\n"
        "   16 |   - {id: t, use: tokens, in: dense}\n"
        "      |                              ^^^^^\n"
        "\n"
        "job.yaml:17:38: error: input 'model' of 'u' must be a stage id or {file: PATH}, got a "
        "mapping\n"
        "   17 |   - {id: u, use: export, in: {model: {path: x}}, with: {folder: o}}\n"
        "      |                                      ^^^^^^^^^\n"
        "help: for example model: dense\n"
        "\n"
        "job.yaml:18:18: error: stage 'v' (wanda-prune) needs input 'tokens'\n"
        "   18 |   - {id: v, use: wanda-prune, in: dense}\n"
        "      |                  ^^^^^^^^^^^\n"
        "help: add it under 'in:', for example in: {tokens: <stage id>}\n"
        "\n"
        "8 errors\n");
}

static void test_errors__expectations(void **state)
{
    (void)state;
    expect_stage_errors(
        "  - id: e\n"
        "    use: tokens\n"
        "    expect: {ppl: 5, kl: {max: high, mx: 1}, x: {min: 2, max: 1}}\n",
        "job.yaml:6:19: error: the expectation of 'ppl' must be a mapping with min, "
        "max or both\n"
        "    6 |     expect: {ppl: 5, kl: {max: high, mx: 1}, x: {min: 2, max: 1}}\n"
        "      |                   ^\n"
        "help: for example ppl: {max: 1.08}\n"
        "\n"
        "job.yaml:6:32: error: a threshold of 'kl' must be a number, a duration or a "
        "size\n"
        "    6 |     expect: {ppl: 5, kl: {max: high, mx: 1}, x: {min: 2, max: 1}}\n"
        "      |                                ^^^^\n"
        "\n"
        "job.yaml:6:38: error: unknown key 'mx' in the expectation of 'kl'\n"
        "    6 |     expect: {ppl: 5, kl: {max: high, mx: 1}, x: {min: 2, max: 1}}\n"
        "      |                                      ^^\n"
        "help: did you mean 'max'?\n"
        "\n"
        "job.yaml:6:49: error: the expectation of 'x' has a min above its max\n"
        "    6 |     expect: {ppl: 5, kl: {max: high, mx: 1}, x: {min: 2, max: 1}}\n"
        "      |                                                 ^^^^^^^^^^^^^^^^\n"
        "\n"
        "4 errors\n");
}

static void test_load__files(void **state)
{
    (void)state;
    char folder[ESPL_PATH_MAX];
    char path[ESPL_PATH_MAX + 16];
    struct espl_diagnostics diags;
    struct espl_error err = {0};
    struct espl_job *job = NULL;
    fakes_make_folder(folder);
    assert_int_equal(espl_diagnostics_init(&diags, &err), ESPL_OK);
    (void)snprintf(path, sizeof path, "%s/job.yaml", folder);
    assert_int_equal(espl_job_load(path, fake_stages, NULL, 0, &diags, &job, &err),
                     ESPL_E_NOTFOUND);
    assert_non_null(strstr(err.message, "cannot find job file '"));
    assert_int_equal(espl_job_load(folder, fake_stages, NULL, 0, &diags, &job, &err), ESPL_E_IO);
    assert_int_equal(diags.count, 0);
    fakes_write(path, whole_job);
    assert_int_equal(espl_job_load(path, fake_stages, NULL, 0, &diags, &job, &err), ESPL_OK);
    assert_string_equal(job->file, path);
    espl_job_free(job);
    job = NULL;
    /* The errors of a job that could not be read keep their source text. */
    fakes_write(path, "version: 1\nname: t\nstages: 3\n");
    assert_int_equal(espl_job_load(path, fake_stages, NULL, 0, &diags, &job, &err), ESPL_E_JOB);
    assert_null(job);
    assert_int_equal(diags.count, 1);
    assert_non_null(strstr(diags.source, "stages: 3"));
    espl_diagnostics_free(&diags);
    fakes_remove_folder(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_parse__whole_job),
        cmocka_unit_test(test_parse__connections),
        cmocka_unit_test(test_parse__expectations),
        cmocka_unit_test(test_parse__outputs_by_name),
        cmocka_unit_test(test_resolved__reads_back_to_the_same_job),
        cmocka_unit_test(test_overrides__values_and_origin),
        cmocka_unit_test(test_overrides__give_what_the_file_lacks),
        cmocka_unit_test(test_overrides__errors),
        cmocka_unit_test(test_errors__top_level),
        cmocka_unit_test(test_errors__stage_items),
        cmocka_unit_test(test_errors__missing_parameter_points_at_use),
        cmocka_unit_test(test_errors__duplicate_ids_show_both_places),
        cmocka_unit_test(test_errors__connections),
        cmocka_unit_test(test_errors__expectations),
        cmocka_unit_test(test_load__files),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
