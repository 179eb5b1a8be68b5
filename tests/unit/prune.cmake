espl_unit_test(test_wanda LINK espl_stages)
espl_unit_test(test_magnitude LINK espl_stages)
espl_unit_test(test_prune_select LINK espl_stages SOURCES prune_fixture.c)
espl_unit_test(test_group_align LINK espl_stages)
espl_unit_test(test_calibration LINK espl_stages SOURCES prune_fixture.c)
espl_unit_test(test_hidden_states LINK espl_stages SOURCES prune_fixture.c)
espl_unit_test(test_wanda_stage LINK espl_stages SOURCES prune_cases.c prune_fixture.c)
espl_unit_test(test_magnitude_stage LINK espl_stages SOURCES prune_cases.c prune_fixture.c)
espl_unit_test(test_prune_resume LINK espl_stages SOURCES prune_cases.c prune_fixture.c)
espl_unit_test(test_prune_refusals LINK espl_stages SOURCES prune_cases.c prune_fixture.c)
espl_unit_test(test_prune_golden LINK espl_stages TIMEOUT 600
               SOURCES prune_golden.c prune_fixture.c text_fixture.c golden_data.c)
# `plain`: the same code as test_prune_golden on more data; too long under the sanitizers.
espl_unit_test(test_prune_golden_shared LINK espl_stages TIMEOUT 900 LABELS unit plain
               SOURCES prune_golden.c prune_fixture.c text_fixture.c golden_data.c)
espl_unit_test(test_prune_golden_full LINK espl_stages TIMEOUT 3600 LABELS slow
               SOURCES prune_golden.c prune_fixture.c text_fixture.c golden_data.c)
espl_unit_test(test_prune_plan LINK espl_stages SOURCES plan_fixture.c prune_fixture.c)
