#include "core/buf.h"

#include "core/checked.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BUF_FIRST_CAPACITY = 64, ARENA_BLOCK_BYTES = 4096 };

void espl_buf_init(struct espl_buf *buf, size_t limit)
{
    memset(buf, 0, sizeof *buf);
    buf->limit = limit;
}

void espl_buf_free(struct espl_buf *buf)
{
    if (buf == NULL) {
        return;
    }
    free(buf->data);
    const size_t limit = buf->limit;
    espl_buf_init(buf, limit);
}

void espl_buf_reset(struct espl_buf *buf)
{
    buf->len = 0;
    buf->failed = false;
    if (buf->data != NULL) {
        buf->data[0] = '\0';
    }
}

/* Makes room for `extra` more bytes and the NUL. Doubling keeps a long run of appends linear. */
static bool buf_reserve(struct espl_buf *buf, size_t extra)
{
    size_t needed = 0;
    if (buf->failed || !espl_add_size(buf->len, extra, &needed) || needed > buf->limit ||
        needed == SIZE_MAX) {
        buf->failed = true;
        return false;
    }
    needed++;
    if (needed <= buf->capacity) {
        return true;
    }
    size_t capacity = buf->capacity == 0 ? BUF_FIRST_CAPACITY : buf->capacity;
    while (capacity < needed) {
        capacity = capacity > SIZE_MAX / 2 ? needed : capacity * 2;
    }
    char *data = realloc(buf->data, capacity);
    if (data == NULL) {
        buf->failed = true;
        return false;
    }
    buf->data = data;
    buf->capacity = capacity;
    return true;
}

bool espl_buf_add(struct espl_buf *buf, const void *bytes, size_t len)
{
    if (!buf_reserve(buf, len)) {
        return false;
    }
    if (len > 0) {
        memcpy(buf->data + buf->len, bytes, len);
    }
    buf->len += len;
    buf->data[buf->len] = '\0';
    return true;
}

bool espl_buf_puts(struct espl_buf *buf, const char *text)
{
    return espl_buf_add(buf, text, strlen(text));
}

bool espl_buf_printf(struct espl_buf *buf, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    va_list again;
    va_copy(again, args);
    const int len = vsnprintf(NULL, 0, fmt, args);
    bool ok = false;
    if (len < 0) {
        buf->failed = true;
    } else if (buf_reserve(buf, (size_t)len)) {
        (void)vsnprintf(buf->data + buf->len, (size_t)len + 1, fmt, again);
        buf->len += (size_t)len;
        ok = true;
    }
    va_end(again);
    va_end(args);
    return ok;
}

const char *espl_buf_text(const struct espl_buf *buf)
{
    return buf->data != NULL ? buf->data : "";
}

enum espl_status espl_buf_check(const struct espl_buf *buf, const char *what,
                                struct espl_error *err)
{
    if (!buf->failed) {
        return ESPL_OK;
    }
    return espl_fail(err, ESPL_E_NOMEM,
                     "%s does not fit: out of memory or over the limit of %zu bytes", what,
                     buf->limit);
}

/* A block is a header and its payload in one allocation; the payload starts at an offset that keeps
 * every type aligned. */
struct arena_block {
    struct arena_block *next;
    size_t used;
    size_t capacity;
};

struct espl_arena {
    struct arena_block *blocks; /* newest first */
    size_t held;                /* payload bytes of all blocks */
    size_t limit;
};

static const size_t arena_align = _Alignof(max_align_t);

static size_t round_up(size_t size)
{
    return espl_ceil_div(size, arena_align) * arena_align;
}

struct espl_arena *espl_arena_create(size_t limit)
{
    struct espl_arena *arena = calloc(1, sizeof *arena);
    if (arena != NULL) {
        arena->limit = limit;
    }
    return arena;
}

void espl_arena_destroy(struct espl_arena *arena)
{
    if (arena == NULL) {
        return;
    }
    struct arena_block *block = arena->blocks;
    while (block != NULL) {
        struct arena_block *next = block->next;
        free(block);
        block = next;
    }
    free(arena);
}

static struct arena_block *arena_add_block(struct espl_arena *arena, size_t payload)
{
    size_t total = 0;
    if (payload > arena->limit - arena->held ||
        !espl_add_size(round_up(sizeof(struct arena_block)), payload, &total)) {
        return NULL;
    }
    struct arena_block *block = calloc(1, total);
    if (block == NULL) {
        return NULL;
    }
    block->capacity = payload;
    block->next = arena->blocks;
    arena->blocks = block;
    arena->held += payload;
    return block;
}

void *espl_arena_alloc(struct espl_arena *arena, size_t size)
{
    if (size > SIZE_MAX - arena_align) {
        return NULL;
    }
    const size_t needed = round_up(size == 0 ? 1 : size);
    struct arena_block *block = arena->blocks;
    if (block == NULL || needed > block->capacity - block->used) {
        const size_t room = arena->limit - arena->held;
        size_t payload = needed > ARENA_BLOCK_BYTES ? needed : ARENA_BLOCK_BYTES;
        /* Near the limit a smaller block still serves the request. */
        if (payload > room) {
            payload = needed;
        }
        block = arena_add_block(arena, payload);
        if (block == NULL) {
            return NULL;
        }
    }
    char *payload = (char *)block + round_up(sizeof(struct arena_block));
    void *result = payload + block->used;
    block->used += needed;
    return result;
}

void *espl_arena_array(struct espl_arena *arena, size_t count, size_t item_size)
{
    size_t size = 0;
    if (!espl_mul_size(count, item_size, &size)) {
        return NULL;
    }
    return espl_arena_alloc(arena, size);
}

char *espl_arena_strdup(struct espl_arena *arena, const char *text)
{
    return espl_arena_strndup(arena, text, strlen(text));
}

char *espl_arena_strndup(struct espl_arena *arena, const char *text, size_t len)
{
    size_t size = 0;
    if (!espl_add_size(len, 1, &size)) {
        return NULL;
    }
    char *copy = espl_arena_alloc(arena, size);
    if (copy != NULL && len > 0) {
        memcpy(copy, text, len);
    }
    return copy;
}

char *espl_arena_printf(struct espl_arena *arena, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    va_list again;
    va_copy(again, args);
    const int len = vsnprintf(NULL, 0, fmt, args);
    char *text = len < 0 ? NULL : espl_arena_alloc(arena, (size_t)len + 1);
    if (text != NULL) {
        (void)vsnprintf(text, (size_t)len + 1, fmt, again);
    }
    va_end(again);
    va_end(args);
    return text;
}
