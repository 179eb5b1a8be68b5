/* What a quantised model says of itself: sites, orders, the scheme and its JSON. */
#include "model/quantised.h"

#include "core/codes.h"
#include "core/units.h"

#include <stdio.h>
#include <string.h>

const char *espl_quant_order_name(enum espl_quant_site site)
{
    static const char *const names[ESPL_QUANT_SITES] = {"order_attention_in", "order_attention_out",
                                                        "order_mlp_in", "order_mlp_mid"};
    return names[site];
}

enum espl_quant_site espl_quant_site_of(enum espl_role role)
{
    switch (role) {
    case ESPL_ROLE_O:
        return ESPL_QUANT_ATTENTION_OUT;
    case ESPL_ROLE_GATE:
    case ESPL_ROLE_UP:
    case ESPL_ROLE_FC1:
        return ESPL_QUANT_MLP_IN;
    case ESPL_ROLE_DOWN:
    case ESPL_ROLE_FC2:
        return ESPL_QUANT_MLP_MID;
    default:
        return ESPL_QUANT_ATTENTION_IN;
    }
}

const enum espl_role *espl_quant_site_roles(const struct espl_model_config *config,
                                            enum espl_quant_site site)
{
    static const enum espl_role roles[2][ESPL_QUANT_SITES][4] = {
        {{ESPL_ROLE_Q, ESPL_ROLE_K, ESPL_ROLE_V, ESPL_ROLE_NONE},
         {ESPL_ROLE_O, ESPL_ROLE_NONE},
         {ESPL_ROLE_FC1, ESPL_ROLE_NONE},
         {ESPL_ROLE_FC2, ESPL_ROLE_NONE}},
        {{ESPL_ROLE_Q, ESPL_ROLE_K, ESPL_ROLE_V, ESPL_ROLE_NONE},
         {ESPL_ROLE_O, ESPL_ROLE_NONE},
         {ESPL_ROLE_GATE, ESPL_ROLE_UP, ESPL_ROLE_NONE},
         {ESPL_ROLE_DOWN, ESPL_ROLE_NONE}},
    };
    return roles[config->activation == ESPL_ACT_SILU ? 1 : 0][site];
}

const struct espl_quant_width *espl_quant_scheme_width(const struct espl_quant_scheme *scheme,
                                                       size_t columns)
{
    for (size_t i = 0; i < scheme->width_count; i++) {
        if (scheme->widths[i].columns == columns) {
            return &scheme->widths[i];
        }
    }
    return NULL;
}

/* ---- JSON ---- */

/* An object by width: {"4096": {"outlier_channels": 128, "group_size": 128}}. Sizes that are the
 * same for all widths are said once more at the top. */
static bool add_widths(const struct espl_quant_scheme *scheme, json_t *object)
{
    json_t *widths = json_object();
    bool same = scheme->width_count > 0;
    bool good = json_object_set_new(object, "widths", widths) == 0;
    for (size_t i = 0; good && i < scheme->width_count; i++) {
        const struct espl_quant_width *width = &scheme->widths[i];
        char columns[24];
        (void)snprintf(columns, sizeof columns, "%zu", width->columns);
        same = same && width->outliers == scheme->widths[0].outliers &&
               width->group_size == scheme->widths[0].group_size;
        good = json_object_set_new(widths, columns,
                                   json_pack("{s:I, s:I}", "outlier_channels",
                                             (json_int_t)width->outliers, "group_size",
                                             (json_int_t)width->group_size)) == 0;
    }
    if (good && same) {
        good = json_object_set_new(object, "group_size",
                                   json_integer((json_int_t)scheme->widths[0].group_size)) == 0 &&
               json_object_set_new(object, "outlier_channels",
                                   json_integer((json_int_t)scheme->widths[0].outliers)) == 0;
    }
    return good;
}

json_t *espl_quant_scheme_to_json(const struct espl_quant_scheme *scheme)
{
    json_t *object = json_pack(
        "{s:i, s:i, s:i, s:i, s:I, s:f, s:f, s:f, s:s, s:s, s:s}", "weight_bits",
        (int)scheme->weight_bits, "activation_bits", (int)scheme->activation_bits, "kv_bits",
        (int)scheme->kv_bits, "outlier_bits", (int)ESPL_QUANT_OUTLIER_BITS, "rows_per_scale",
        (json_int_t)scheme->rows_per_scale, "weight_clip", scheme->weight_clip, "activation_clip",
        scheme->activation_clip, "kv_clip", scheme->kv_clip, "method",
        scheme->gptq ? "gptq" : "rtn", "scale", scheme->full_scale ? "full" : "half", "reorder",
        scheme->reordered ? "hessian" : "none");
    if (object == NULL || !add_widths(scheme, object)) {
        json_decref(object);
        return NULL;
    }
    return object;
}

/* Reads members one after the other; the first that is not as it must be is remembered. */
struct reader {
    const json_t *object;
    const char *bad;
};

static uint64_t read_count(struct reader *reader, const char *name, uint64_t low, uint64_t high)
{
    const json_t *value = json_object_get(reader->object, name);
    const json_int_t number = json_integer_value(value);
    if (!json_is_integer(value) || number < (json_int_t)low || number > (json_int_t)high) {
        reader->bad = reader->bad != NULL ? reader->bad : name;
        return low;
    }
    return (uint64_t)number;
}

static double read_clip(struct reader *reader, const char *name)
{
    const json_t *value = json_object_get(reader->object, name);
    const double number = json_number_value(value);
    if (!json_is_number(value) || !(number > 0.0 && number <= 1.0)) {
        reader->bad = reader->bad != NULL ? reader->bad : name;
        return 1.0;
    }
    return number;
}

/* True for the first word, false for the second. */
static bool read_word(struct reader *reader, const char *name, const char *yes, const char *no)
{
    const char *text = json_string_value(json_object_get(reader->object, name));
    if (text == NULL || (strcmp(text, yes) != 0 && strcmp(text, no) != 0)) {
        reader->bad = reader->bad != NULL ? reader->bad : name;
        return false;
    }
    return strcmp(text, yes) == 0;
}

static unsigned read_bits(struct reader *reader, const char *name, unsigned low, bool can_be_float)
{
    const uint64_t bits = read_count(reader, name, low, ESPL_QUANT_FLOAT_BITS);
    if (bits > ESPL_CODES_MAX_BITS && !(can_be_float && bits == ESPL_QUANT_FLOAT_BITS)) {
        reader->bad = reader->bad != NULL ? reader->bad : name;
    }
    return (unsigned)bits;
}

/* A width's sizes; false when they make no sense. */
static bool read_width(const char *columns, const json_t *sizes, struct espl_quant_width *width)
{
    struct reader reader = {sizes, NULL};
    int64_t count = 0;
    if (!espl_parse_int(columns, &count) || count < 1 || count > INT32_MAX) {
        return false;
    }
    width->columns = (size_t)count;
    width->outliers = (size_t)read_count(&reader, "outlier_channels", 0, width->columns - 1);
    const size_t normal = width->columns - width->outliers;
    width->group_size = (size_t)read_count(&reader, "group_size", 0, normal);
    return reader.bad == NULL && (width->group_size == 0 || normal % width->group_size == 0);
}

static void read_widths(struct reader *reader, struct espl_quant_scheme *scheme)
{
    json_t *widths = json_object_get(reader->object, "widths");
    const size_t count = json_object_size(widths);
    bool good = count > 0 && count <= ESPL_QUANT_MAX_WIDTHS;
    const char *columns;
    json_t *sizes;
    json_object_foreach(widths, columns, sizes)
    {
        good = good && read_width(columns, sizes, &scheme->widths[scheme->width_count++]);
    }
    if (!good) {
        reader->bad = reader->bad != NULL ? reader->bad : "widths";
    }
}

enum espl_status espl_quant_scheme_from_json(const json_t *json, struct espl_quant_scheme *scheme,
                                             struct espl_error *err)
{
    struct reader reader = {json, NULL};
    memset(scheme, 0, sizeof *scheme);
    scheme->weight_bits = read_bits(&reader, "weight_bits", ESPL_CODES_MIN_BITS, false);
    scheme->activation_bits = read_bits(&reader, "activation_bits", 4, true);
    scheme->kv_bits = read_bits(&reader, "kv_bits", 4, true);
    scheme->rows_per_scale = (size_t)read_count(&reader, "rows_per_scale", 1, 2);
    (void)read_count(&reader, "outlier_bits", ESPL_QUANT_OUTLIER_BITS, ESPL_QUANT_OUTLIER_BITS);
    scheme->weight_clip = read_clip(&reader, "weight_clip");
    scheme->activation_clip = read_clip(&reader, "activation_clip");
    scheme->kv_clip = read_clip(&reader, "kv_clip");
    scheme->gptq = read_word(&reader, "method", "gptq", "rtn");
    scheme->full_scale = read_word(&reader, "scale", "full", "half");
    scheme->reordered = read_word(&reader, "reorder", "hessian", "none");
    read_widths(&reader, scheme);
    if (reader.bad != NULL) {
        return espl_fail(err, ESPL_E_CORRUPT,
                         "the description of the quantisation has no valid '%s'", reader.bad);
    }
    return ESPL_OK;
}
