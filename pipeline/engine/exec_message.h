/* Messages from a stage process to the driver through a pipe: a header of two native 32-bit words
 * (type, length) and a JSON text. Both ends are the same program, so the byte order is fixed. */
#ifndef ESPL_ENGINE_EXEC_MESSAGE_H
#define ESPL_ENGINE_EXEC_MESSAGE_H

#include "core/buf.h"
#include "core/error.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum espl_message_type {
    ESPL_MESSAGE_PROGRESS = 1, /* done, total, what */
    ESPL_MESSAGE_LOG,          /* level, text */
    ESPL_MESSAGE_METRIC,       /* name, value, volatile */
    ESPL_MESSAGE_LAYER_METRIC, /* series, layer, module, value */
    ESPL_MESSAGE_STATUS        /* the error record and the stage's figures: the last message */
};

enum { ESPL_MESSAGE_MAX_BYTES = 1 << 20 };

/** Writes one whole message; waits when the pipe is full. Takes the reference of body, also on
 *  failure; a NULL body is NOMEM. */
enum espl_status espl_message_send_take(int fd, enum espl_message_type type, json_t *body,
                                        struct espl_error *err);

struct espl_message_reader {
    struct espl_buf buf; /* bytes not yet taken apart */
};

void espl_message_reader_init(struct espl_message_reader *reader);
void espl_message_reader_free(struct espl_message_reader *reader);
/** Reads what the non-blocking pipe holds now. *end: the writer closed it. */
enum espl_status espl_message_reader_fill(struct espl_message_reader *reader, int fd, bool *end,
                                          struct espl_error *err);
/** Takes the next whole message; *body is a new reference, NULL when none is complete yet.
 *  Errors: INTERNAL when the bytes are no message. */
enum espl_status espl_message_reader_next(struct espl_message_reader *reader,
                                          enum espl_message_type *type, json_t **body,
                                          struct espl_error *err);

/** Text as a JSON string; bytes of text that is not UTF-8 (a file name may hold any) become '?'.
 * New reference, NULL when out of memory. */
json_t *espl_json_text(const char *text);

/** An error record as a JSON object and back. New reference. */
json_t *espl_error_to_json(const struct espl_error *err);
void espl_error_from_json(const json_t *object, struct espl_error *err);

#endif
