/* The resolved job as YAML. */
#include "engine/job.h"
#include "engine/schema_internal.h"

#include <inttypes.h>
#include <string.h>

/* Plain where every YAML reader sees the same text, double-quoted elsewhere. */
static void print_text(const char *text, struct espl_buf *out)
{
    static const char *const words[] = {"null", "true", "false", "yes", "no",
                                        "on",   "off",  "y",     "n"};
    bool plain = (text[0] >= 'a' && text[0] <= 'z') || text[0] == '/' || text[0] == '.';
    bool letters = false;
    for (const char *c = text; *c != '\0' && plain; c++) {
        const bool letter = (*c >= 'a' && *c <= 'z') || (*c >= 'A' && *c <= 'Z');
        letters = letters || letter;
        plain = letter || (*c >= '0' && *c <= '9') || strchr("_./-", *c) != NULL;
    }
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
        plain = plain && strcmp(text, words[i]) != 0;
    }
    if (plain && letters) {
        espl_buf_puts(out, text);
    } else {
        espl_schema_quote(text, out);
    }
}

static void print_value(const struct espl_param *param, const char *text, struct espl_buf *out)
{
    const bool texty = param->type == ESPL_PARAM_STRING || param->type == ESPL_PARAM_PATH ||
                       param->type == ESPL_PARAM_ENUM || param->type == ESPL_PARAM_NM ||
                       param->type == ESPL_PARAM_GRID;
    if ((param->flags & ESPL_PARAM_LIST) != 0 || !texty) {
        espl_buf_puts(out, text);
    } else {
        print_text(text, out);
    }
}

static void print_params(const struct espl_job_stage *stage, struct espl_buf *out)
{
    bool first = true;
    for (size_t i = 0; stage->stage->params[i].name != NULL; i++) {
        const struct espl_param *param = &stage->stage->params[i];
        const char *text = stage->values[i].text;
        if ((param->flags & ESPL_PARAM_OPTIONAL) != 0 && text[0] == '\0') {
            continue;
        }
        espl_buf_printf(out, "%s      %s: ", first ? "    with:\n" : "", param->name);
        print_value(param, text, out);
        espl_buf_puts(out, "\n");
        first = false;
    }
}

static void print_inputs(const struct espl_job_stage *stage, struct espl_buf *out)
{
    if (stage->input_count > 0) {
        espl_buf_puts(out, "    in:\n");
    }
    for (size_t i = 0; i < stage->input_count; i++) {
        const struct espl_job_input *input = &stage->inputs[i];
        espl_buf_printf(out, "      %s: ", input->port);
        if (input->file != NULL) {
            espl_buf_puts(out, "{file: ");
            espl_schema_quote(input->file, out);
            espl_buf_puts(out, "}\n");
        } else {
            espl_buf_printf(out, "%s%s%s\n", input->stage_id,
                            input->output_port[0] != '\0' ? "." : "", input->output_port);
        }
    }
}

static void print_expects(const struct espl_job_stage *stage, struct espl_buf *out)
{
    if (stage->expect_count > 0) {
        espl_buf_puts(out, "    expect:\n");
    }
    for (size_t i = 0; i < stage->expect_count; i++) {
        const struct espl_job_expect *expect = &stage->expects[i];
        char number[ESPL_UNIT_TEXT];
        espl_buf_puts(out, "      ");
        print_text(expect->metric, out);
        espl_buf_puts(out, ": {");
        if (expect->has_min) {
            espl_print_real(expect->min, number);
            espl_buf_printf(out, "min: %s", number);
        }
        if (expect->has_max) {
            espl_print_real(expect->max, number);
            espl_buf_printf(out, "%smax: %s", expect->has_min ? ", " : "", number);
        }
        espl_buf_puts(out, "}\n");
    }
}

void espl_job_resolved_yaml(const struct espl_job *job, struct espl_buf *out)
{
    espl_buf_puts(out, "version: 1\nname: ");
    print_text(job->name, out);
    espl_buf_printf(out, "\nseed: %" PRIu64 "\ndevice: %s\n", job->seed, job->device);
    if (job->limit_host_memory > 0 || job->limit_scratch > 0) {
        espl_buf_puts(out, "limits:\n");
    }
    if (job->limit_host_memory > 0) {
        espl_buf_printf(out, "  host_memory: %" PRIu64 "B\n", job->limit_host_memory);
    }
    if (job->limit_scratch > 0) {
        espl_buf_printf(out, "  scratch: %" PRIu64 "B\n", job->limit_scratch);
    }
    espl_buf_puts(out, "stages:\n");
    for (size_t i = 0; i < job->stage_count; i++) {
        const struct espl_job_stage *stage = &job->stages[i];
        espl_buf_puts(out, "  - id: ");
        print_text(stage->id, out);
        espl_buf_printf(out, "\n    use: %s\n", stage->stage->name);
        print_inputs(stage, out);
        print_params(stage, out);
        print_expects(stage, out);
    }
}
