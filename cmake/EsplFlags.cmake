# Compiler flags of the style guide, as an interface target.
add_library(espl_flags INTERFACE)
set(CMAKE_C_STANDARD 11)
set(CMAKE_C_STANDARD_REQUIRED ON)
set(CMAKE_C_EXTENSIONS OFF)
target_compile_definitions(espl_flags INTERFACE _GNU_SOURCE)
target_compile_options(espl_flags INTERFACE
    $<$<COMPILE_LANGUAGE:C>:-Wall -Wextra -Wpedantic -Wconversion -Wshadow -Wstrict-prototypes
    -Wmissing-prototypes -Wvla -Wformat=2 -ffp-contract=off -fno-strict-aliasing>)
target_include_directories(espl_flags INTERFACE
    ${PROJECT_SOURCE_DIR}/pipeline ${PROJECT_SOURCE_DIR} ${PROJECT_SOURCE_DIR}/kernels/include)
if(ESPL_WERROR)
    target_compile_options(espl_flags INTERFACE $<$<COMPILE_LANGUAGE:C>:-Werror>)
endif()
if(ESPL_ANALYZE)
    # Two of its checks are off: gcc 12 loses pointers that are stored through another pointer (its
    # leaks; LeakSanitizer looks for them in every test) and bytes that a vectorised loop writes.
    target_compile_definitions(espl_flags INTERFACE ESPL_ANALYZE)
    target_compile_options(espl_flags INTERFACE
        $<$<COMPILE_LANGUAGE:C>:-fanalyzer -Wno-analyzer-malloc-leak
        -Wno-analyzer-use-of-uninitialized-value -Wno-unknown-pragmas -Wno-unused-parameter
        -Wno-unused -Wno-sign-conversion>)
endif()
if(ESPL_SANITIZE)
    target_compile_options(espl_flags INTERFACE -fsanitize=address,undefined
                           -fno-sanitize-recover=undefined -fno-omit-frame-pointer)
    target_link_options(espl_flags INTERFACE -fsanitize=address,undefined)
    # The stack frames that find a use after return, on by default from gcc 13, are not aligned for
    # AVX-512 registers (GCC bug 110027).
    target_compile_options(espl_flags INTERFACE
        $<$<COMPILE_LANG_AND_ID:C,GNU>:--param=asan-use-after-return=0>)
endif()
if(ESPL_COVERAGE)
    target_compile_options(espl_flags INTERFACE -fprofile-instr-generate -fcoverage-mapping)
    target_link_options(espl_flags INTERFACE -fprofile-instr-generate)
endif()
if(ESPL_FUZZ)
    if(NOT CMAKE_C_COMPILER_ID MATCHES "Clang")
        message(FATAL_ERROR "ESPL_FUZZ needs clang: configure with -DCMAKE_C_COMPILER=clang")
    endif()
    target_compile_options(espl_flags INTERFACE -fsanitize=fuzzer-no-link,address,undefined)
    target_link_options(espl_flags INTERFACE -fsanitize=address,undefined)
    # The stack frames that find a use after return, on by default from gcc 13, are not aligned for
    # AVX-512 registers (GCC bug 110027).
    target_compile_options(espl_flags INTERFACE
        $<$<COMPILE_LANG_AND_ID:C,GNU>:--param=asan-use-after-return=0>)
endif()
