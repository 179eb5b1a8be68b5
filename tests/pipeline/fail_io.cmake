# LD_PRELOAD library that makes the n-th write of a process tree fail; see fail_io.c. Not linked to
# espl_flags: a sanitizer in a preloaded library would have to be first in every program.
add_library(fail_io MODULE fail_io.c)
set_target_properties(fail_io PROPERTIES C_STANDARD 11)
target_compile_definitions(fail_io PRIVATE _GNU_SOURCE)
target_compile_options(fail_io PRIVATE -Wall -Wextra -Wconversion -Wshadow)
target_link_libraries(fail_io PRIVATE ${CMAKE_DL_LIBS})

espl_unit_test(test_artifact_disk_full LINK espl_artifact espl_core LABELS pipeline)
add_dependencies(test_artifact_disk_full fail_io)
target_compile_definitions(test_artifact_disk_full PRIVATE ESPL_FAIL_IO="$<TARGET_FILE:fail_io>")
espl_unit_test(test_artifact_kill LINK espl_artifact espl_core LABELS pipeline)
