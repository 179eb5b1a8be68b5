/* BPE tokenizers from tokenizer.json of HF tokenizers: byte-level (GPT-2, OPT, LLaMA 3, Qwen) and
 * metaspace with byte fallback (LLaMA 1 and 2). Pre-tokenisers run on PCRE2 with match limits,
 * normalisers on utf8proc. What a file asks for and we do not do is refused by name, never
 * approximated. */
#ifndef ESPL_DATASETS_TOKENIZER_H
#define ESPL_DATASETS_TOKENIZER_H

#include "core/error.h"
#include "core/fs.h"
#include "core/hash.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct espl_tokenizer;

/** Parses tokenizer.json text; config_json: text of tokenizer_config.json, NULL allowed (BOS
 * rules). This is what the fuzz target calls. Errors: CORRUPT, UNSUPPORTED naming the field. */
enum espl_status espl_tokenizer_parse(const char *json, size_t json_len, const char *config_json,
                                      size_t config_len, struct espl_tokenizer **out,
                                      struct espl_error *err);
/** path: a tokenizer.json, or a folder that holds one. */
enum espl_status espl_tokenizer_load(const char *path, struct espl_tokenizer **out,
                                     struct espl_error *err);
/** The files that espl_tokenizer_load(path) reads: tokenizer.json, and the tokenizer_config.json
 * beside it ("" when there is none). NOTFOUND when there is no tokenizer.json. */
enum espl_status espl_tokenizer_files(const char *path, char json_path[ESPL_PATH_MAX],
                                      char config_path[ESPL_PATH_MAX], struct espl_error *err);
void espl_tokenizer_destroy(struct espl_tokenizer *tokenizer);

/** SHA-256 of the tokenizer.json text. */
const char *espl_tokenizer_sha256(const struct espl_tokenizer *tokenizer);
/** Largest id, added tokens included, plus one: a model needs at least that many embedding rows. */
size_t espl_tokenizer_vocab_size(const struct espl_tokenizer *tokenizer);
/** Id that the tokenizer files put before a text, -1 = none. */
int32_t espl_tokenizer_bos(const struct espl_tokenizer *tokenizer);

/** Encodes UTF-8 text (invalid UTF-8 is CORRUPT with the byte offset). Special tokens written in
 * the text are recognised as HF does. add_special: BOS (and EOS) as the post-processor says. *ids:
 * malloc'ed, owned by the caller (NULL when there are no ids). */
enum espl_status espl_tokenizer_encode(const struct espl_tokenizer *tokenizer, const char *text,
                                       size_t len, bool add_special, int32_t **ids, size_t *count,
                                       struct espl_error *err);

#endif
