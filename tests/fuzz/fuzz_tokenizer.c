/* tokenizer.json from a hostile file, and a text encoded with it. Input: the JSON, a NUL, the text
 * (without a NUL a fixed text is taken; a second NUL starts a tokenizer_config.json). */
#include "datasets/tokenizer.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char fixed_text[] = "Hello  world's 123 \xc3\xa9\xe6\x97\xa5 <s> \n\n ab";
    const char *const json = (const char *)data;
    const char *const first = size > 0 ? memchr(json, '\0', size) : NULL;
    const size_t json_len = first != NULL ? (size_t)(first - json) : size;
    const char *text = first != NULL ? first + 1 : fixed_text;
    size_t text_len = first != NULL ? size - json_len - 1 : sizeof fixed_text - 1;
    const char *const second = text_len > 0 ? memchr(text, '\0', text_len) : NULL;
    const char *config = NULL;
    size_t config_len = 0;
    if (first != NULL && second != NULL) {
        config = second + 1;
        config_len = text_len - (size_t)(second - text) - 1;
        text_len = (size_t)(second - text);
    }
    struct espl_error err;
    struct espl_tokenizer *tokenizer = NULL;
    if (espl_tokenizer_parse(json, json_len, config, config_len, &tokenizer, &err) != ESPL_OK) {
        return 0;
    }
    const size_t vocab_size = espl_tokenizer_vocab_size(tokenizer);
    for (int special = 0; special < 2; special++) {
        int32_t *ids = NULL;
        size_t count = 0;
        if (espl_tokenizer_encode(tokenizer, text, text_len, special != 0, &ids, &count, &err) ==
            ESPL_OK) {
            for (size_t i = 0; special == 0 && i < count; i++) {
                if (ids[i] < 0 || (size_t)ids[i] >= vocab_size) {
                    abort(); /* an id that the tokenizer does not have */
                }
            }
            free(ids);
        }
    }
    espl_tokenizer_destroy(tokenizer);
    return 0;
}
