# Checkpoints that do not fit in memory; see huge.sh.
espl_chain_test(huge_plan LABELS slow TIMEOUT 3600 COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/huge.sh plan)
espl_chain_test(huge_run LABELS slow TIMEOUT 7200 COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/huge.sh run)
set_tests_properties(huge_run PROPERTIES SKIP_RETURN_CODE 77)
