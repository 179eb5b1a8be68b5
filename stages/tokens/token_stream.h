/* Documents as token ids, tokenised when they are asked for. */
#ifndef ESPL_STAGES_TOKENS_TOKEN_STREAM_H
#define ESPL_STAGES_TOKENS_TOKEN_STREAM_H

#include "core/error.h"
#include "core/hash.h"
#include "datasets/tokenizer.h"
#include "datasets/windows.h"
#include "engine/param.h"
#include "stages/tokens/documents.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct espl_token_stream;

/** Reads the text files (list of paths) and finds their documents. tokenizer, paths: borrowed. The
 * files of one stream may hold 4 GiB of text in all. */
enum espl_status espl_token_stream_open_text(const struct espl_tokenizer *tokenizer,
                                             const struct espl_list *paths,
                                             enum espl_document_mode mode, bool add_bos,
                                             struct espl_token_stream **out,
                                             struct espl_error *err);
/** Reads a raw file of little-endian int32 ids as one document. */
enum espl_status espl_token_stream_open_ids(const char *path, struct espl_token_stream **out,
                                            struct espl_error *err);
void espl_token_stream_close(struct espl_token_stream *stream);

size_t espl_token_stream_documents(const struct espl_token_stream *stream);
/** SHA-256 of the decompressed text (of all files joined), or of the ids file. */
const char *espl_token_stream_sha256(const struct espl_token_stream *stream);
/** Largest id of an ids file plus one; 0 for texts. */
int64_t espl_token_stream_id_end(const struct espl_token_stream *stream);
/** Did a document begin with the written-out BOS token, so that none was put in front? */
bool espl_token_stream_had_bos(const struct espl_token_stream *stream);
/** Ids of one document, valid until the next call. Documents that were tokenised before are kept
 * while they fit in 256 MiB. */
enum espl_status espl_token_stream_load(struct espl_token_stream *stream, size_t document,
                                        const int32_t **ids, size_t *count, struct espl_error *err);
/** The stream as the window sampler wants it. */
struct espl_document_source espl_token_stream_source(struct espl_token_stream *stream);

#endif
