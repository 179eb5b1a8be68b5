#include "core/tame.h"

void espl_text_tame(char *text)
{
    for (char *at = text; *at != '\0'; at++) {
        if ((unsigned char)*at < 0x20 || *at == 0x7f) {
            *at = '?';
        }
    }
}
