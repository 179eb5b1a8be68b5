/* Importing the checkpoint of a fixture, and looking at what came of it. */
#ifndef ESPL_TESTS_IMPORT_FIXTURE_H
#define ESPL_TESTS_IMPORT_FIXTURE_H

#include "stages/import/import_transfer.h"
#include "unit/model_fixture.h"

/** Log lines of an import. */
struct fixture_log {
    char text[4096];
};

/** Imports f->folder to dir/name; the error is in f->err. lines: NULL allowed. content: of the
 * artifact, NULL allowed. */
enum espl_status fixture_import(struct fixture *f, const char *name, enum espl_import_dtype dtype,
                                enum espl_import_storage storage, struct fixture_log *lines,
                                char content[ESPL_SHA256_HEX]);
/** Opening f->folder must fail; message, hint: parts of what is said. */
void fixture_import_fails(struct fixture *f, enum espl_status status, const char *message,
                          const char *hint);
/** The artifact dir/name holds the fixture_value()s of a checkpoint as `dtype`. */
void fixture_check_import(const struct fixture *f, const char *name,
                          const struct espl_model_config *config, enum espl_dtype dtype);

#endif
