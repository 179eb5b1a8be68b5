/* A growing byte buffer with a mandatory upper limit, and an arena for many small objects with one
 * owner. A buffer that is fed by a file cannot grow without bound: the limit is an argument. */
#ifndef ESPL_CORE_BUF_H
#define ESPL_CORE_BUF_H

#include "core/error.h"

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>

/** Zero-initialise with espl_buf_init(). `data` is always NUL-terminated once something was added
 *  (the NUL is not counted in len). After a failed append the buffer is unchanged and `failed` is
 *  set; later appends are no-ops, so a sequence needs one check at its end. */
struct espl_buf {
    char *data;
    size_t len;
    size_t capacity;
    size_t limit;
    bool failed;
};

void espl_buf_init(struct espl_buf *buf, size_t limit);
void espl_buf_free(struct espl_buf *buf);
/** Empties the buffer, keeps the memory, clears `failed`. */
void espl_buf_reset(struct espl_buf *buf);
bool espl_buf_add(struct espl_buf *buf, const void *bytes, size_t len);
bool espl_buf_puts(struct espl_buf *buf, const char *text);
bool espl_buf_printf(struct espl_buf *buf, const char *fmt, ...) ESPL_PRINTF(2, 3);
/** The text, "" when empty. Borrowed. */
const char *espl_buf_text(const struct espl_buf *buf);
/** ESPL_OK, or ESPL_E_NOMEM naming `what` and the limit when an append failed. */
enum espl_status espl_buf_check(const struct espl_buf *buf, const char *what,
                                struct espl_error *err);

struct espl_arena;

/** limit: most bytes the arena may hold in all. Returns NULL when out of memory. */
struct espl_arena *espl_arena_create(size_t limit);
void espl_arena_destroy(struct espl_arena *arena);
/** Zeroed memory aligned for any type, valid until the arena is destroyed; NULL when over the limit
 *  or out of memory. size 0 gives a valid pointer. */
void *espl_arena_alloc(struct espl_arena *arena, size_t size);
/** Array form with overflow check. */
void *espl_arena_array(struct espl_arena *arena, size_t count, size_t item_size);
char *espl_arena_strdup(struct espl_arena *arena, const char *text);
char *espl_arena_strndup(struct espl_arena *arena, const char *text, size_t len);
char *espl_arena_printf(struct espl_arena *arena, const char *fmt, ...) ESPL_PRINTF(2, 3);

#endif
