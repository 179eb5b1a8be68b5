/* espalier stages: what is registered, and the parameters of one stage; all from the tables. */
#include "cli/command.h"
#include "cli/print.h"
#include "core/suggest.h"
#include "engine/schema.h"
#include "stages/registry.h"

#include <stdlib.h>
#include <string.h>

static const struct espl_option stages_options[] = {{0}};

static void join_ports(const struct espl_port *ports, char *out, size_t out_size)
{
    size_t len = 0;
    out[0] = '\0';
    for (const struct espl_port *port = ports; port->name != NULL && len < out_size; ++port) {
        const bool optional = (port->flags & ESPL_PORT_OPTIONAL) != 0;
        const int n = snprintf(out + len, out_size - len, "%s%s%s%s", len > 0 ? ", " : "",
                               optional ? "[" : "", port->name, optional ? "]" : "");
        len += n > 0 ? (size_t)n : 0;
    }
    if (out[0] == '\0') {
        (void)snprintf(out, out_size, "-");
    }
}

static void join_kinds(const struct espl_port *ports, char *out, size_t out_size)
{
    size_t len = 0;
    out[0] = '\0';
    for (const struct espl_port *port = ports; port->name != NULL && len < out_size; ++port) {
        const int n = snprintf(out + len, out_size - len, "%s%s", len > 0 ? ", " : "", port->kind);
        len += n > 0 ? (size_t)n : 0;
    }
}

/* What a stage does, and below it what goes in and comes out: three columns of ports and kinds
 * would leave the text no room on 80 columns. */
static enum espl_status print_list(const struct espl_cli *cli, struct espl_error *err)
{
    static const struct espl_column columns[] = {{.title = "stage"},
                                                 {.title = "what it does", .gives_way = true}};
    struct espl_table *table = NULL;
    enum espl_status status =
        espl_table_create(columns, sizeof columns / sizeof columns[0], &table, err);
    if (status != ESPL_OK) {
        return status;
    }
    for (size_t i = 0; espl_stages[i] != NULL; ++i) {
        const struct espl_stage *stage = espl_stages[i];
        char inputs[160];
        char outputs[160];
        join_ports(stage->inputs, inputs, sizeof inputs);
        join_kinds(stage->outputs, outputs, sizeof outputs);
        espl_table_cell(table, ESPL_STYLE_BOLD, "%s", stage->name);
        espl_table_cell(table, ESPL_STYLE_PLAIN, "%s", stage->summary);
        espl_table_line(table, "  %s -> %s", inputs, outputs);
    }
    status = espl_table_print(table, cli->out, 0, cli->colour_out, err);
    espl_table_destroy(table);
    if (status == ESPL_OK) {
        fputs("\nInputs -> what comes out; an [input] is optional.\n"
              "`espalier stages NAME` lists the parameters of a stage.\n",
              cli->out);
    }
    return status;
}

static json_t *ports_json(const struct espl_port *ports)
{
    json_t *list = json_array();
    for (const struct espl_port *port = ports; port->name != NULL; ++port) {
        json_t *item = json_pack("{s:s, s:s, s:b, s:s}", "name", port->name, "kind", port->kind,
                                 "optional", (port->flags & ESPL_PORT_OPTIONAL) != 0, "help",
                                 port->help != NULL ? port->help : "");
        (void)json_array_append_new(list, item); /* a failure shows as a NULL list at the end */
    }
    return list;
}

static json_t *params_json(const struct espl_param *params)
{
    static const char *const types[] = {
        [ESPL_PARAM_BOOL] = "bool",         [ESPL_PARAM_INT] = "int",   [ESPL_PARAM_REAL] = "real",
        [ESPL_PARAM_STRING] = "string",     [ESPL_PARAM_ENUM] = "enum", [ESPL_PARAM_PATH] = "path",
        [ESPL_PARAM_DURATION] = "duration", [ESPL_PARAM_SIZE] = "size", [ESPL_PARAM_NM] = "nm",
        [ESPL_PARAM_GRID] = "grid"};
    json_t *list = json_array();
    for (const struct espl_param *param = params; param->name != NULL; ++param) {
        const bool limited = param->min < param->max;
        json_t *choices = NULL;
        if (param->choices != NULL) {
            choices = json_array();
            for (size_t i = 0; param->choices[i] != NULL; ++i) {
                (void)json_array_append_new(choices, json_string(param->choices[i]));
            }
        }
        json_t *item = json_pack(
            "{s:s, s:s, s:b, s:s?, s:s, s:s, s:o*, s:o*, s:o*}", "name", param->name, "type",
            types[param->type], "list", (param->flags & ESPL_PARAM_LIST) != 0, "default",
            param->default_text, "unit", param->unit != NULL ? param->unit : "", "help",
            param->help, "min", limited ? json_real(param->min) : NULL, "max",
            limited ? json_real(param->max) : NULL, "choices", choices);
        (void)json_array_append_new(list, item);
    }
    return list;
}

static json_t *stage_json(const struct espl_stage *stage)
{
    return json_pack("{s:s, s:s, s:i, s:b, s:b, s:b, s:b, s:b, s:o, s:o, s:o}", "name", stage->name,
                     "summary", stage->summary, "cache_version", (int)stage->cache_version,
                     "measures", (stage->flags & ESPL_STAGE_MEASURES) != 0, "network",
                     (stage->flags & ESPL_STAGE_NETWORK) != 0, "resumable",
                     (stage->flags & ESPL_STAGE_RESUMABLE) != 0, "seeded",
                     (stage->flags & ESPL_STAGE_SEEDED) != 0, "on_device",
                     (stage->flags & ESPL_STAGE_ON_DEVICE) != 0, "inputs",
                     ports_json(stage->inputs), "outputs", ports_json(stage->outputs), "parameters",
                     params_json(stage->params));
}

static enum espl_status unknown_stage(const char *name, struct espl_error *err)
{
    size_t count = 0;
    while (espl_stages[count] != NULL) {
        ++count;
    }
    const char **names = calloc(count + 1, sizeof *names);
    if (names == NULL) {
        return espl_fail(err, ESPL_E_NOMEM, "out of memory for the stage names");
    }
    for (size_t i = 0; i < count; ++i) {
        names[i] = espl_stages[i]->name;
    }
    const char *near = espl_suggest(name, names, count);
    espl_fail(err, ESPL_E_USAGE, "there is no stage '%s'", name);
    if (near != NULL) {
        espl_hint(err, "did you mean '%s'?  `espalier stages` lists all", near);
    } else {
        espl_hint(err, "`espalier stages` lists all");
    }
    free(names);
    return err->code;
}

static enum espl_status run_stages(struct espl_cli *cli, struct espl_error *err)
{
    const char *name = cli->args->positional_count > 0 ? cli->args->positional[0] : NULL;
    const struct espl_stage *stage = NULL;
    for (size_t i = 0; name != NULL && espl_stages[i] != NULL; ++i) {
        stage = strcmp(espl_stages[i]->name, name) == 0 ? espl_stages[i] : stage;
    }
    if (name != NULL && stage == NULL) {
        return unknown_stage(name, err);
    }
    if (cli->json) {
        json_t *list = json_array();
        for (size_t i = 0; espl_stages[i] != NULL; ++i) {
            if (name == NULL || espl_stages[i] == stage) {
                (void)json_array_append_new(list, stage_json(espl_stages[i]));
            }
        }
        return espl_print_json_take(
            cli, json_pack("{s:s, s:o}", "schema", "espalier.stages/1", "stages", list), err);
    }
    if (stage == NULL) {
        return print_list(cli, err);
    }
    struct espl_buf text;
    espl_buf_init(&text, (size_t)1 << 20);
    espl_schema_help(stage, &text);
    enum espl_status status = espl_buf_check(&text, "the help text", err);
    if (status == ESPL_OK) {
        status = espl_print_lines(cli->out, espl_buf_text(&text), err);
    }
    espl_buf_free(&text);
    return status;
}

const struct espl_command espl_command_stages = {
    .name = "stages",
    .summary = "list the stages, or the parameters of one",
    .positional = "[NAME]",
    .complete = ESPL_COMPLETE_STAGE_NAME,
    .min_positional = 0,
    .max_positional = 1,
    .options = stages_options,
    .run = run_stages,
};
