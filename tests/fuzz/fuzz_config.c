/* config.json of a foreign checkpoint. What is accepted must describe itself: to JSON and back, and
 * to the foreign form and back, without a change; its sizes must be countable. */
#include "model/arch.h"
#include "model/config.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static char *text_of(const struct espl_model_config *config)
{
    json_t *const json = espl_model_config_to_json(config);
    char *const text = json != NULL ? json_dumps(json, JSON_SORT_KEYS | JSON_COMPACT) : NULL;
    json_decref(json);
    if (text == NULL) {
        abort();
    }
    return text;
}

/* The description of an artifact is read by the same build that wrote it. */
static void check_own_form(const struct espl_model_config *config)
{
    struct espl_error err;
    struct espl_model_config again;
    char *const first = text_of(config);
    json_t *const json = json_loads(first, 0, NULL);
    if (espl_model_config_from_json(json, &again, &err) != ESPL_OK) {
        abort();
    }
    char *const second = text_of(&again);
    if (strcmp(first, second) != 0) {
        abort();
    }
    free(second);
    free(first);
    json_decref(json);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct espl_error err;
    struct espl_model_config config;
    json_t *const json = json_loadb((const char *)data, size, JSON_REJECT_DUPLICATES, NULL);
    if (json == NULL) {
        return 0;
    }
    if (espl_model_config_from_hf(json, &config, &err) == ESPL_OK) {
        check_own_form(&config);
        json_t *const foreign = espl_model_config_to_hf(&config);
        if (foreign == NULL) {
            abort();
        }
        json_decref(foreign);
        (void)espl_arch_parameters(&config);
    } else if (err.message[0] == '\0') {
        abort(); /* refused without a word */
    }
    /* The same bytes as the description of an artifact. */
    (void)espl_model_config_from_json(json, &config, &err);
    json_decref(json);
    return 0;
}
