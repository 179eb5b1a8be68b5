/* The registry: what is built in, what a user's file may say, and how mistakes are told. */
#include "datasets/registry/data_registry.h"

#include "support/cmocka_all.h"

#include <stdio.h>
#include <string.h>

/* One parse with all it needs. */
struct parse {
    struct espl_arena *arena;
    struct espl_diagnostics diags;
    struct espl_registry registry;
    struct espl_error err;
    enum espl_status status;
};

static void parse_text(struct parse *parse, const char *text, size_t len)
{
    memset(parse, 0, sizeof *parse);
    parse->arena = espl_arena_create((size_t)64 << 20);
    assert_non_null(parse->arena);
    assert_int_equal(espl_diagnostics_init(&parse->diags, &parse->err), ESPL_OK);
    parse->status = espl_registry_parse("r.yaml", text, len, parse->arena, &parse->diags,
                                        &parse->registry, &parse->err);
}

static void parse_free(struct parse *parse)
{
    espl_diagnostics_free(&parse->diags);
    espl_arena_destroy(parse->arena);
}

static const struct espl_registry_entry *find(const struct parse *parse, const char *name)
{
    const struct espl_registry_entry *entry = NULL;
    struct espl_error err;
    assert_int_equal(espl_registry_find(&parse->registry, name, &entry, &err), ESPL_OK);
    return entry;
}

static void test_builtin__reads_without_a_problem(void **state)
{
    (void)state;
    struct parse parse;
    parse_text(&parse, espl_registry_builtin, espl_registry_builtin_len);
    assert_int_equal(parse.status, ESPL_OK);
    assert_int_equal(parse.diags.count, 0);
    const struct espl_registry_entry *const wikitext = find(&parse, "wikitext2");
    assert_int_equal(wikitext->kind, ESPL_REGISTRY_TEXT);
    assert_int_equal(wikitext->file_count, 1);
    assert_int_equal(wikitext->files[0].size, 4721645);
    assert_int_equal(wikitext->files[0].url_count, 2);
    assert_string_equal(wikitext->files[0].members[2].name, "wiki.test.raw");
    assert_string_equal(wikitext->use[0], "wiki.test.raw");
    const struct espl_registry_entry *const qwen = find(&parse, "qwen2-0.5b");
    assert_string_equal(qwen->repository, "Qwen/Qwen2-0.5B");
    assert_true(qwen->weights);
    assert_true(espl_registry_is_commit(qwen->revision));
    const struct espl_registry_entry *const sample = find(&parse, "imagenet-300");
    assert_int_equal(sample->subset.classes, 300);
    assert_int_equal(sample->subset.train_per_class, 500);
    assert_int_equal(sample->subset.val_per_class, 50);
    static const char *const wanted[] = {"c4-shard", "penn-treebank", "imagenet-val",
                                         "cifar-10", "fashion-mnist", "opt-125m",
                                         "llama-7b", "deit-b",        "swin-t"};
    for (size_t i = 0; i < sizeof wanted / sizeof wanted[0]; i++) {
        (void)find(&parse, wanted[i]);
    }
    parse_free(&parse);
}

static void test_find__unknown_name_suggests(void **state)
{
    (void)state;
    struct parse parse;
    const struct espl_registry_entry *entry = NULL;
    parse_text(&parse, espl_registry_builtin, espl_registry_builtin_len);
    assert_int_equal(espl_registry_find(&parse.registry, "fashion-mist", &entry, &parse.err),
                     ESPL_E_NOTFOUND);
    assert_string_equal(parse.err.message, "'fashion-mist' is not in the registry");
    assert_non_null(strstr(parse.err.hint, "'fashion-mnist'"));
    parse_free(&parse);
}

/* A mistake, where it stands, and what is said. */
struct mistake {
    const char *entry; /* YAML of an entry's fields, after "  a:" */
    unsigned line;
    unsigned column;
    const char *message;
    const char *hint; /* part of it; "" = none */
};

static void test_parse__mistakes_are_located(void **state)
{
    (void)state;
    static const struct mistake mistakes[] = {
        {"{title: t, license: l, licence: l, files: [{name: f, url: https://x/f}]}", 3, 17,
         "unknown field 'license' of an entry", "'licence'"},
        {"{licence: l, files: [{name: f, url: https://x/f}]}", 3, 6, "'title' is missing", ""},
        {"{title: t, licence: l, kind: txt, files: [{name: f, url: https://x/f}]}", 3, 35,
         "'kind' must be one of the known words", "'text'"},
        {"{title: t, licence: l, files: [{name: ../f, url: https://x/f}]}", 3, 44,
         "'name' must be a relative path without '..'", ""},
        {"{title: t, licence: l, files: [{name: f, url: http://example.org/f}]}", 3, 37,
         "'url': the address 'http://example.org/f' is not https", "127.0.0.1"},
        {"{title: t, licence: l, files: [{name: f, url: \"https://me:word@example.org/f\"}]}", 3,
         37, "'url': an address must not hold a user name or password", ""},
        {"{title: t, licence: l, files: [{name: f, url: https://x/f, sha256: abc}]}", 3, 73,
         "'sha256' must be 64 lower-case hexadecimal digits", "leave it out"},
        {"{title: t, licence: l, files: [{name: f, url: https://x/f, size: big}]}", 3, 71,
         "'size' must be a number of bytes, or a size like 4GB", ""},
        {"{title: t, licence: l, files: [{name: f}]}", 3, 37,
         "a file needs a 'url', or its entry a 'hub'", ""},
        {"{title: t, licence: l, files: [{name: f, url: https://x/f}, {name: f, url: https://y}]}",
         3, 66, "the file 'f' is there twice", ""},
        {"{title: t, licence: l, files: [{name: f/g, url: https://x}, {name: f, url: https://y}]}",
         3, 37, "'f' cannot be a file and the folder of 'f/g'", ""},
        {"{title: t, licence: l, files: [{name: f, url: https://x, unpack: [{member: a, name: b}, "
         "{member: c, name: b}]}]}",
         3, 37, "the file 'b' is there twice", ""},
        {"{title: t, licence: l, files: [{name: f, url: https://x, unpack: [{member: a, name: "
         "f}]}]}",
         3, 37, "the file 'f' is there twice", ""},
        {"{title: t, licence: l, files: [{name: set.json, url: https://x}]}", 3, 37,
         "no file can be named 'set.json': that describes the set", ""},
        {"{title: t, licence: l, files: [{name: f, url: https://x}], use: g}", 3, 6,
         "'use' names 'g', which is no file of the entry", ""},
        {"{title: t, licence: l}", 3, 6, "an entry needs either 'files' or 'manual'", ""},
        {"{title: t, licence: l, weights: safetensors}", 3, 6,
         "'weights' needs a 'hub' that holds them", ""},
        {"{title: t, licence: l, hub: {repository: x, revision: main}, files: [f]}", 3, 34,
         "'repository' must be owner/name, got 'x'", ""},
        {"{title: t, licence: l, hub: {repository: x/y, revision: ../z}, files: [f]}", 3, 34,
         "'revision' must be a commit, branch or tag, got '../z'", ""},
        {"{title: t, licence: l, manual: m, subset: {classes: many}}", 3, 58,
         "'classes' must be a whole number from 0", ""},
        {"{title: t, licence: l, files: [{name: f, url: https://x/f, optional: 1}]}", 3, 75,
         "'optional' must be true or false", ""},
        {"{title: t, licence: l, files: [{name: f, url: https://x/f, unpack: [g]}]}", 3, 74,
         "'unpack' must be a list of {member: .., name: ..}", ""},
        {"[title]", 3, 6, "an entry must be a mapping", ""},
    };
    for (size_t i = 0; i < sizeof mistakes / sizeof mistakes[0]; i++) {
        struct parse parse;
        char text[512];
        (void)snprintf(text, sizeof text, "version: 1\nentries:\n  a: %s\n", mistakes[i].entry);
        parse_text(&parse, text, strlen(text));
        assert_int_equal(parse.status, ESPL_E_JOB);
        const struct espl_diagnostic *found = NULL;
        for (size_t j = 0; j < parse.diags.count; j++) {
            if (strcmp(parse.diags.items[j].error.message, mistakes[i].message) == 0) {
                found = &parse.diags.items[j];
            }
        }
        if (found == NULL) {
            fail_msg("%s: said '%s'", mistakes[i].entry, parse.diags.items[0].error.message);
            return;
        }
        assert_int_equal(found->error.at.line, mistakes[i].line);
        assert_int_equal(found->error.at.column, mistakes[i].column);
        assert_non_null(strstr(found->error.hint, mistakes[i].hint));
        parse_free(&parse);
    }
}

/* All that docs/fetch.md calls this machine, and names that only look alike. */
static void test_parse__what_is_no_mistake(void **state)
{
    (void)state;
    static const char text[] =
        "version: 1\nentries:\n  a:\n    title: t\n    licence: l\n    use: [f-x, f/g]\n"
        "    files:\n      - {name: f/g, url: \"http://[::1]:80/x\"}\n"
        "      - {name: f-x, url: http://localhost/x}\n"
        "      - {name: sub/set.json, url: http://127.0.0.1:8000/x}\n";
    struct parse parse;
    parse_text(&parse, text, sizeof text - 1);
    assert_int_equal(parse.diags.count, 0);
    assert_int_equal(parse.status, ESPL_OK);
    parse_free(&parse);
}

static void test_parse__all_mistakes_at_once(void **state)
{
    (void)state;
    static const char text[] = "version: 2\nentires: {}\nentries:\n  A B: {title: t, licence: l, "
                               "manual: m}\n  b: {title: t, manual: m}\n";
    struct parse parse;
    parse_text(&parse, text, sizeof text - 1);
    assert_int_equal(parse.diags.count, 4);
    assert_string_equal(parse.diags.items[0].error.message, "'version' must be 1, got '2'");
    assert_string_equal(parse.diags.items[1].error.message,
                        "unknown field 'entires' of a registry");
    assert_string_equal(parse.diags.items[2].error.message, "'A B' is no name of an entry");
    assert_string_equal(parse.diags.items[3].error.message, "'licence' is missing");
    parse_free(&parse);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_builtin__reads_without_a_problem),
        cmocka_unit_test(test_find__unknown_name_suggests),
        cmocka_unit_test(test_parse__mistakes_are_located),
        cmocka_unit_test(test_parse__what_is_no_mistake),
        cmocka_unit_test(test_parse__all_mistakes_at_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
