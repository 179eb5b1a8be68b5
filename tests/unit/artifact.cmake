# Tests of pipeline/artifact.
espl_unit_test(test_artifact LINK espl_artifact espl_core)
espl_unit_test(test_artifact_errors LINK espl_artifact espl_core)
espl_unit_test(test_store LINK espl_artifact espl_core)

# Allocation failures, one by one: our own calls of malloc and its sisters go through the test.
espl_unit_test(test_no_memory LINK espl_artifact espl_core)
target_link_options(test_no_memory PRIVATE
                    -Wl,--wrap=malloc,--wrap=calloc,--wrap=realloc)
