/* Is a text well-formed XML, as far as our pages use it? Tags nest and match, attributes are quoted
 * and unique, only the five named entities and numbers stand after '&', ids are unique, characters
 * are valid UTF-8 that XML allows. */
#ifndef ESPL_TESTS_XML_CHECK_H
#define ESPL_TESTS_XML_CHECK_H

#include <stdbool.h>
#include <stddef.h>

/** message: says what is wrong and at which byte. */
bool xml_check(const char *text, size_t len, char message[256]);

#endif
