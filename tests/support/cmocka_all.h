/* cmocka with what it needs before it, in the order it needs: the blank lines keep clang-format
 * from sorting them. */
#ifndef ESPL_TESTS_CMOCKA_ALL_H
#define ESPL_TESTS_CMOCKA_ALL_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#endif
