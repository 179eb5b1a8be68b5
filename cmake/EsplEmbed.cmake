# Builds a text file into the program: cmake -DINPUT=FILE -DOUTPUT=FILE.c -DHEADER=H -DNAME=SYMBOL -P EsplEmbed.cmake
# writes `const char SYMBOL[]` (with a NUL behind it) and `const size_t SYMBOL_len`.
file(READ ${INPUT} bytes HEX)
string(LENGTH "${bytes}" digits)
math(EXPR len "${digits} / 2")
string(REGEX REPLACE "(..)" "0x\\1," bytes "${bytes}")
string(REGEX REPLACE "(.....................................................................................)"
       "\\1\n" bytes "${bytes}")
file(WRITE ${OUTPUT} "/* Made from ${INPUT} when building. */\n#include \"${HEADER}\"\n\n"
     "const size_t ${NAME}_len = ${len};\nconst char ${NAME}[] = {\n${bytes}0};\n")
