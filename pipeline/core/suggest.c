#include "core/suggest.h"

#include "core/checked.h"

#include <stdbool.h>
#include <string.h>

/* Names longer than this are never typing mistakes of one another. */
enum { SUGGEST_MAX_LENGTH = 255, SUGGEST_LEAST_BEGINNING = 3 };

static size_t least(size_t a, size_t b)
{
    return a < b ? a : b;
}

size_t espl_edit_distance(const char *a, const char *b)
{
    const size_t rows = strlen(a);
    const size_t cols = strlen(b);
    if (rows > SUGGEST_MAX_LENGTH || cols > SUGGEST_MAX_LENGTH) {
        return strcmp(a, b) == 0 ? 0 : (rows > cols ? rows : cols);
    }
    /* Three rows of the table suffice: a swap looks two rows back. */
    size_t table[3][SUGGEST_MAX_LENGTH + 1];
    for (size_t j = 0; j <= cols; j++) {
        table[0][j] = j;
    }
    for (size_t i = 1; i <= rows; i++) {
        size_t *now = table[i % 3];
        const size_t *above = table[(i - 1) % 3];
        const size_t *two_above = table[(i + 1) % 3];
        now[0] = i;
        for (size_t j = 1; j <= cols; j++) {
            const size_t change = a[i - 1] == b[j - 1] ? 0 : 1;
            size_t best = least(above[j] + 1, now[j - 1] + 1);
            best = least(best, above[j - 1] + change);
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
                best = least(best, two_above[j - 2] + 1);
            }
            now[j] = best;
        }
    }
    return table[rows % 3][cols];
}

static bool is_near(const char *word, const char *candidate, size_t distance)
{
    const size_t a = strlen(word);
    const size_t b = strlen(candidate);
    const size_t longer = a > b ? a : b;
    if (a >= SUGGEST_LEAST_BEGINNING && strncmp(word, candidate, a) == 0) {
        return true;
    }
    /* A distance of the whole length means that no character was kept. */
    return distance <= espl_ceil_div(longer, 3) && (distance == 0 || distance < longer);
}

const char *espl_suggest(const char *word, const char *const *candidates, size_t count)
{
    const char *nearest = NULL;
    size_t nearest_distance = 0;
    for (size_t i = 0; i < count; i++) {
        const size_t distance = espl_edit_distance(word, candidates[i]);
        if (is_near(word, candidates[i], distance) &&
            (nearest == NULL || distance < nearest_distance)) {
            nearest = candidates[i];
            nearest_distance = distance;
        }
    }
    return nearest;
}
