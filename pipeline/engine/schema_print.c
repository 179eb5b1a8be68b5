/* What a parameter table says about itself: help text and JSON values. */
#include "engine/schema.h"
#include "engine/schema_internal.h"

#include <string.h>

/* Canonical text of one value -> JSON. */
static json_t *value_json(const struct espl_param *param, const char *text)
{
    int64_t integer = 0;
    double real = 0.0;
    if (text == NULL) {
        return json_null();
    }
    if ((param->flags & ESPL_PARAM_LIST) != 0) {
        return json_loads(text, 0, NULL);
    }
    switch (param->type) {
    case ESPL_PARAM_BOOL:
        return text[0] == '\0' ? json_null() : json_boolean(strcmp(text, "true") == 0);
    case ESPL_PARAM_INT:
        if ((param->flags & ESPL_PARAM_AUTO_INT) != 0 && strcmp(text, "auto") == 0) {
            return json_string(text);
        }
        return espl_parse_int(text, &integer) ? json_integer(integer) : json_null();
    case ESPL_PARAM_REAL:
        return espl_parse_real(text, &real) ? json_real(real) : json_null();
    case ESPL_PARAM_STRING:
    case ESPL_PARAM_ENUM:
    case ESPL_PARAM_PATH:
    case ESPL_PARAM_DURATION:
    case ESPL_PARAM_SIZE:
    case ESPL_PARAM_NM:
    case ESPL_PARAM_GRID:
        break;
    }
    const bool absent = text[0] == '\0' && (param->flags & ESPL_PARAM_OPTIONAL) != 0;
    return absent ? json_null() : json_string(text);
}

json_t *espl_schema_json(const struct espl_param *table, const struct espl_param_value *values)
{
    json_t *object = json_object();
    for (size_t i = 0; table[i].name != NULL; i++) {
        (void)json_object_set_new(object, table[i].name, value_json(&table[i], values[i].text));
    }
    return object;
}

static size_t widest(const char *name, size_t width)
{
    const size_t len = strlen(name);
    return len > width ? len : width;
}

static void print_ports(const char *title, const struct espl_port *ports, size_t width,
                        struct espl_buf *out)
{
    espl_buf_printf(out, "\n%s\n", title);
    for (const struct espl_port *port = ports; port->name != NULL; port++) {
        espl_buf_printf(out, "  %-*s  ", (int)width, port->name);
        for (const char *c = port->kind; *c != '\0'; c++) {
            if (*c == '|') {
                espl_buf_puts(out, " or ");
            } else {
                espl_buf_add(out, c, 1);
            }
        }
        espl_buf_puts(out, (port->flags & ESPL_PORT_OPTIONAL) != 0 ? ", optional\n" : "\n");
        if (port->help != NULL && port->help[0] != '\0') {
            espl_buf_printf(out, "  %-*s  %s\n", (int)width, "", port->help);
        }
    }
    if (ports->name == NULL) {
        espl_buf_puts(out, "  none\n");
    }
}

static void print_param(const struct espl_param *param, size_t width, struct espl_buf *out)
{
    espl_buf_printf(out, "  %-*s  ", (int)width, param->name);
    espl_schema_describe_type(param, out);
    if (param->unit != NULL && param->unit[0] != '\0') {
        espl_buf_printf(out, " (%s)", param->unit);
    }
    if (param->default_text != NULL) {
        espl_buf_printf(out, ", default %s",
                        param->default_text[0] != '\0' ? param->default_text : "\"\"");
    } else {
        espl_buf_puts(out, (param->flags & ESPL_PARAM_OPTIONAL) != 0 ? ", optional" : ", required");
    }
    espl_buf_printf(out, "\n  %-*s  %s\n", (int)width, "", param->help);
}

void espl_schema_help(const struct espl_stage *stage, struct espl_buf *out)
{
    size_t width = 0;
    for (const struct espl_param *param = stage->params; param->name != NULL; param++) {
        width = widest(param->name, width);
    }
    for (const struct espl_port *port = stage->inputs; port->name != NULL; port++) {
        width = widest(port->name, width);
    }
    for (const struct espl_port *port = stage->outputs; port->name != NULL; port++) {
        width = widest(port->name, width);
    }
    espl_buf_printf(out, "%s: %s\n", stage->name, stage->summary);
    print_ports("inputs", stage->inputs, width, out);
    print_ports("outputs", stage->outputs, width, out);
    espl_buf_puts(out, "\nparameters\n");
    for (const struct espl_param *param = stage->params; param->name != NULL; param++) {
        print_param(param, width, out);
    }
    if (stage->params->name == NULL) {
        espl_buf_puts(out, "  none\n");
    }
}
