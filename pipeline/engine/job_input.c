/* `in:` of a stage: which artifact goes to which port. */
#include "core/suggest.h"
#include "engine/job_internal.h"
#include "engine/source_text.h"

#include <stdio.h>
#include <string.h>

static size_t count_ports(const struct espl_port *ports)
{
    size_t count = 0;
    while (ports[count].name != NULL) {
        count++;
    }
    return count;
}

static const struct espl_port *find_port(const struct espl_port *ports, const char *name)
{
    for (const struct espl_port *port = ports; port->name != NULL; port++) {
        if (strcmp(port->name, name) == 0) {
            return port;
        }
    }
    return NULL;
}

/* Port names for a hint: "model, tokens". */
static void list_ports(const struct espl_port *ports, struct espl_buf *out)
{
    for (const struct espl_port *port = ports; port->name != NULL; port++) {
        espl_buf_printf(out, "%s%s", port == ports ? "" : ", ", port->name);
    }
}

static void hint_ports(struct espl_diagnostic *item, const char *word,
                       const struct espl_port *ports, const char *what)
{
    enum { MAX_PORTS = 32 };
    const char *names[MAX_PORTS];
    size_t count = 0;
    for (const struct espl_port *port = ports; port->name != NULL && count < MAX_PORTS; port++) {
        names[count++] = port->name;
    }
    const char *near = espl_suggest(word, names, count);
    struct espl_buf list;
    espl_buf_init(&list, 4096);
    list_ports(ports, &list);
    if (near != NULL) {
        espl_diagnostic_hint(item, "did you mean '%s'?  %s: %s", near, what, espl_buf_text(&list));
    } else {
        espl_diagnostic_hint(item, "%s: %s", what, espl_buf_text(&list));
    }
    espl_buf_free(&list);
}

/* The port that a bare `in: id` means: the only one, else the first that must be connected. */
static const struct espl_port *default_port(const struct espl_stage *stage)
{
    for (const struct espl_port *port = stage->inputs; port->name != NULL; port++) {
        if ((port->flags & ESPL_PORT_OPTIONAL) == 0) {
            return port;
        }
    }
    return stage->inputs;
}

/* Which output of `producer` is meant by `name` ("" = not said)? */
static bool choose_output(struct espl_job_reader *reader, const struct espl_job_stage *producer,
                          const char *name, struct espl_job_input *input)
{
    const struct espl_port *outputs = producer->stage->outputs;
    const bool single = count_ports(outputs) == 1;
    input->output_port = "";
    if (name[0] == '\0') {
        if (!single) {
            struct espl_buf list;
            espl_buf_init(&list, 4096);
            list_ports(outputs, &list);
            espl_diagnostic_hint(espl_diagnostics_add(reader->diags, ESPL_E_JOB, &input->at,
                                                      "'%s' (%s) has several outputs", producer->id,
                                                      producer->stage->name),
                                 "name one as %s.<output>: %s", producer->id, espl_buf_text(&list));
            espl_buf_free(&list);
        }
        return single;
    }
    if (find_port(outputs, name) == NULL) {
        char shown[ESPL_CLIP_TEXT];
        espl_text_clip(name, shown);
        hint_ports(espl_diagnostics_add(reader->diags, ESPL_E_JOB, &input->at,
                                        "'%s' (%s) has no output '%s'", producer->id,
                                        producer->stage->name, shown),
                   name, outputs, "its outputs");
        return false;
    }
    input->output_port = single ? "" : name;
    return true;
}

static bool read_stage_source(struct espl_job_reader *reader, const struct espl_job_stage *stage,
                              const struct espl_node *node, struct espl_job_input *input)
{
    const char *dot = strchr(node->text, '.');
    const size_t id_len = dot != NULL ? (size_t)(dot - node->text) : strlen(node->text);
    const char *id = espl_arena_strndup(reader->job->arena, node->text, id_len);
    if (id == NULL) {
        reader->no_memory = true;
        return false;
    }
    const struct espl_job_stage *producer = id[0] != '\0' ? espl_job_find(reader->job, id) : NULL;
    if (producer == NULL) {
        char shown[ESPL_CLIP_TEXT];
        espl_text_clip(id, shown);
        struct espl_diagnostic *item = espl_diagnostics_add(
            reader->diags, ESPL_E_JOB, &input->at, "input '%s' of '%s' names an unknown stage '%s'",
            input->port, stage->id, shown);
        const char *near = espl_suggest(id, reader->ids, reader->job->stage_count);
        if (near != NULL && near[0] != '\0') {
            espl_diagnostic_hint(item, "did you mean '%s'?", near);
        } else {
            espl_diagnostic_hint(item, "write the id of a stage of this job, or {file: PATH}");
        }
        return false;
    }
    input->stage_id = producer->id;
    /* A producer whose `use` is unknown was reported already. */
    return producer->stage != NULL &&
           choose_output(reader, producer, dot != NULL ? dot + 1 : "", input);
}

/* "id", "id.port" or {file: path}. */
static bool read_source(struct espl_job_reader *reader, const struct espl_job_stage *stage,
                        const struct espl_port *port, const struct espl_node *node,
                        struct espl_job_input *input)
{
    input->port = port->name;
    input->at = node->at;
    if (node->type == ESPL_NODE_SCALAR && !espl_node_is_null(node)) {
        return read_stage_source(reader, stage, node, input);
    }
    const struct espl_node *file = espl_node_get(node, "file", NULL);
    if (file != NULL && node->count == 1 && file->type == ESPL_NODE_SCALAR &&
        file->text[0] != '\0' && !espl_node_is_null(file)) {
        input->file = file->text;
        input->at = file->at;
        return true;
    }
    espl_diagnostic_hint(
        espl_diagnostics_add(reader->diags, ESPL_E_JOB, &node->at,
                             "input '%s' of '%s' must be a stage id or {file: PATH}, got %s",
                             port->name, stage->id, espl_job_describe_node(node)),
        "for example %s: dense", port->name);
    return false;
}

static void check_required(struct espl_job_reader *reader, const struct espl_job_stage *stage,
                           const bool *given)
{
    for (size_t i = 0; stage->stage->inputs[i].name != NULL; i++) {
        const struct espl_port *port = &stage->stage->inputs[i];
        if (!given[i] && (port->flags & ESPL_PORT_OPTIONAL) == 0) {
            espl_diagnostic_hint(espl_diagnostics_add(reader->diags, ESPL_E_JOB, &stage->use_at,
                                                      "stage '%s' (%s) needs input '%s'", stage->id,
                                                      stage->stage->name, port->name),
                                 "add it under 'in:', for example in: {%s: <stage id>}",
                                 port->name);
        }
    }
}

/* The mapping port -> source. Fills sources[] by port index; false when a port is unknown. */
static bool read_port_mapping(struct espl_job_reader *reader, const struct espl_job_stage *stage,
                              const struct espl_node *in, const struct espl_node **sources)
{
    const struct espl_port *ports = stage->stage->inputs;
    bool all_known = true;
    for (size_t i = 0; i < in->count; i++) {
        const struct espl_port *port = find_port(ports, in->keys[i]->text);
        if (port != NULL) {
            sources[port - ports] = in->items[i];
            continue;
        }
        char shown[ESPL_CLIP_TEXT];
        espl_text_clip(in->keys[i]->text, shown);
        hint_ports(espl_diagnostics_add(reader->diags, ESPL_E_JOB, &in->keys[i]->at,
                                        "unknown input '%s' for stage '%s' (%s)", shown, stage->id,
                                        stage->stage->name),
                   in->keys[i]->text, ports, "its inputs");
        all_known = false;
    }
    return all_known;
}

void espl_job_read_inputs(struct espl_job_reader *reader, struct espl_job_stage *stage,
                          const struct espl_node *in)
{
    const struct espl_port *ports = stage->stage->inputs;
    const size_t count = count_ports(ports);
    const struct espl_node **sources =
        espl_job_reader_alloc(reader, count, sizeof(const struct espl_node *));
    bool *given = espl_job_reader_alloc(reader, count, sizeof *given);
    stage->inputs = espl_job_reader_alloc(reader, count, sizeof *stage->inputs);
    if (sources == NULL || given == NULL || stage->inputs == NULL) {
        return;
    }
    const bool present = in != NULL && !espl_node_is_null(in);
    bool check_missing = true;
    const bool bare_file = present && espl_node_get(in, "file", NULL) != NULL && in->count == 1 &&
                           find_port(ports, "file") == NULL;
    if (present && count == 0) {
        (void)espl_diagnostics_add(reader->diags, ESPL_E_JOB, &in->at,
                                   "stage '%s' (%s) takes no input", stage->id, stage->stage->name);
    } else if (present && (in->type == ESPL_NODE_SCALAR || bare_file)) {
        sources[default_port(stage->stage) - ports] = in;
    } else if (present && in->type == ESPL_NODE_MAPPING) {
        /* A misspelt port is one mistake, not two. */
        check_missing = read_port_mapping(reader, stage, in, sources);
    } else if (present) {
        espl_diagnostic_hint(
            espl_diagnostics_add(reader->diags, ESPL_E_JOB, &in->at,
                                 "'in' must be a stage id or a mapping of inputs, got a list"),
            "for example in: {%s: <stage id>}", default_port(stage->stage)->name);
    }
    for (size_t i = 0; i < count; i++) {
        given[i] = sources[i] != NULL;
        if (given[i] &&
            read_source(reader, stage, &ports[i], sources[i], &stage->inputs[stage->input_count])) {
            stage->input_count++;
        }
    }
    if (check_missing && (!present || in->type != ESPL_NODE_SEQUENCE)) {
        check_required(reader, stage, given);
    }
}
