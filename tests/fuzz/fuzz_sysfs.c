/* libFuzzer target: values and labels of sysfs files are untrusted input. */
#include "core/units.h"
#include "eval/energy/sysfs_value.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* What was accepted as a number must be one when it is written out and read back, and must have
 * fitted in the limit. */
static void check_number(const char *text, size_t size)
{
    const int64_t untouched = 0x5a5a5a5a5a5a5a5a;
    int64_t value = untouched;
    int64_t again = 0;
    char printed[32];
    if (!espl_sysfs_parse_int(text, size, &value)) {
        if (value != untouched) {
            abort(); /* a refusal leaves the value alone */
        }
        return;
    }
    (void)snprintf(printed, sizeof printed, "%" PRId64, value);
    if (size > ESPL_SYSFS_TEXT_MAX || !espl_parse_int(printed, &again) || again != value) {
        abort();
    }
    const bool minus = memchr(text, '-', size) != NULL;
    if ((minus && value > 0) || (!minus && value < 0)) {
        abort(); /* an overflow would change the sign */
    }
}

static void check_label(const char *text, size_t size)
{
    char label[ESPL_SYSFS_LABEL_MAX];
    const bool accepted = espl_sysfs_parse_label(text, size, label);
    if (accepted != (label[0] != '\0') || memchr(label, '\0', sizeof label) == NULL) {
        abort();
    }
    for (const char *c = label; *c != '\0'; c++) {
        if (*c < ' ' || *c > '~') {
            abort(); /* nothing may reach a terminal that is not plain text */
        }
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    /* An exact copy, so that a read behind the end is seen. */
    char *text = malloc(size == 0 ? 1 : size);
    if (text == NULL) {
        return 0;
    }
    memcpy(text, data, size);
    check_number(text, size);
    check_label(text, size);
    free(text);
    return 0;
}
