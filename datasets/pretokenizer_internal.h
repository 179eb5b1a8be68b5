/* The chain of primitive steps that a pre_tokenizer field becomes; shared by its parser and its
 * runner. */
#ifndef ESPL_DATASETS_PRETOKENIZER_INTERNAL_H
#define ESPL_DATASETS_PRETOKENIZER_INTERNAL_H

#include "datasets/pretokenizer.h"

/** What becomes of the matches when a text is split on them. */
enum espl_split_behavior {
    ESPL_SPLIT_REMOVED,
    ESPL_SPLIT_ISOLATED,
    ESPL_SPLIT_MERGED_WITH_PREVIOUS,
    ESPL_SPLIT_MERGED_WITH_NEXT,
    ESPL_SPLIT_CONTIGUOUS
};

enum espl_split_matcher {
    ESPL_MATCH_REGEX,
    ESPL_MATCH_STRING,
    ESPL_MATCH_SPACE,
    ESPL_MATCH_NUMERIC,
    ESPL_MATCH_PUNCTUATION
};

enum espl_pretokenizer_kind {
    ESPL_STEP_SPLIT,
    ESPL_STEP_PREFIX_SPACE, /* a space before a piece that has none */
    ESPL_STEP_BYTE_MAP,     /* every byte becomes one printable character (GPT-2) */
    ESPL_STEP_METASPACE     /* spaces become the replacement, one is put in front */
};

enum espl_prepend_scheme { ESPL_PREPEND_ALWAYS, ESPL_PREPEND_FIRST, ESPL_PREPEND_NEVER };

struct espl_pretokenizer_step {
    enum espl_pretokenizer_kind kind;
    enum espl_split_matcher matcher;
    enum espl_split_behavior behavior;
    bool invert; /* matches and the text between them change places */
    struct espl_token_regex *regex;
    char *text; /* ESPL_MATCH_STRING: what to find; ESPL_STEP_METASPACE: the replacement */
    size_t text_len;
    enum espl_prepend_scheme prepend;
};

struct espl_pretokenizer {
    size_t count;
    struct espl_pretokenizer_step steps[ESPL_PRETOKENIZER_STEPS];
};

/** The character that stands for a byte in byte-level vocabularies (GPT-2's table). */
unsigned espl_byte_level_code(unsigned char byte);

#endif
