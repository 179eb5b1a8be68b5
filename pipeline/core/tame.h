/* Texts from outside, made fit to be shown. */
#ifndef ESPL_CORE_TAME_H
#define ESPL_CORE_TAME_H

/** Control characters, as names of files and texts in them can hold them, become '?', in place:
 * what is shown is one line, and no terminal obeys it. */
void espl_text_tame(char *text);

#endif
