# Whole chains through the program. `slow` ones run with `./dev test --slow`.
function(espl_chain_test name)
    cmake_parse_arguments(ARG "" "TIMEOUT" "LABELS;COMMAND" ${ARGN})
    add_test(NAME ${name} COMMAND sh ${ARG_COMMAND}
             WORKING_DIRECTORY ${CMAKE_CURRENT_SOURCE_DIR})
    set_tests_properties(${name} PROPERTIES LABELS "${ARG_LABELS}" TIMEOUT ${ARG_TIMEOUT}
        ENVIRONMENT "ESPALIER=$<TARGET_FILE:espalier>;SOURCE=${PROJECT_SOURCE_DIR};FAIL_IO=$<TARGET_FILE:fail_io>")
endfunction()

set(here ${CMAKE_CURRENT_SOURCE_DIR})
espl_chain_test(chain_golden LABELS pipeline TIMEOUT 120 COMMAND ${here}/golden.sh)
espl_chain_test(chain_threads LABELS pipeline TIMEOUT 300 COMMAND ${here}/threads.sh)
espl_chain_test(chain_round_trip LABELS pipeline TIMEOUT 300 COMMAND ${here}/round_trip.sh)
espl_chain_test(chain_encoded LABELS pipeline TIMEOUT 300 COMMAND ${here}/encoded.sh)
espl_chain_test(chain_packed LABELS pipeline TIMEOUT 300 COMMAND ${here}/packed.sh)
espl_chain_test(chain_deploy LABELS pipeline TIMEOUT 300 COMMAND ${here}/deploy.sh)
espl_chain_test(chain_two_runs LABELS pipeline TIMEOUT 300 COMMAND ${here}/two_runs.sh)
# `plain`: timing, preloading and size make no sense under the sanitizers.
espl_chain_test(chain_crash LABELS "pipeline;plain" TIMEOUT 900 COMMAND ${here}/crash.sh 10)
espl_chain_test(chain_crash_100 LABELS slow TIMEOUT 3600 COMMAND ${here}/crash.sh 100)
espl_chain_test(chain_full_disk LABELS "pipeline;plain" TIMEOUT 900 COMMAND ${here}/full_disk.sh 151)
espl_chain_test(chain_full_disk_every LABELS slow TIMEOUT 7200 COMMAND ${here}/full_disk.sh 1)
espl_chain_test(chain_large LABELS slow TIMEOUT 3600 COMMAND ${here}/large.sh 4000000000)
