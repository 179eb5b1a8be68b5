espl_unit_test(test_atom_stage LINK espl_stages TIMEOUT 300 SOURCES quant_fixture.c prune_fixture.c)
espl_unit_test(test_sparsegpt_stage LINK espl_stages TIMEOUT 300
               SOURCES quant_fixture.c prune_fixture.c)
espl_unit_test(test_atom_robust LINK espl_stages TIMEOUT 300
               SOURCES quant_fixture.c prune_fixture.c)
espl_unit_test(test_atom_reorder LINK espl_stages
               SOURCES quant_fixture.c prune_fixture.c golden_data.c)
espl_unit_test(test_atom_linear LINK espl_stages)
espl_unit_test(test_atom_export LINK espl_stages SOURCES quant_fixture.c prune_fixture.c)
espl_unit_test(test_quantised_model LINK espl_stages SOURCES prune_fixture.c)
espl_unit_test(test_atom_plan LINK espl_stages SOURCES plan_fixture.c prune_fixture.c)
espl_unit_test(test_atom_quality LINK espl_stages TIMEOUT 7200 LABELS slow
               SOURCES quant_fixture.c prune_fixture.c text_fixture.c golden_data.c)
espl_unit_test(test_atom_remask LINK espl_stages TIMEOUT 7200 LABELS slow
               SOURCES quant_fixture.c prune_fixture.c text_fixture.c golden_data.c)
# `plain`: the same code as the other stage tests on more data; too long under the sanitizers.
espl_unit_test(test_atom_golden LINK espl_stages TIMEOUT 600 LABELS unit plain
               SOURCES atom_golden.c quant_fixture.c prune_fixture.c text_fixture.c golden_data.c)
espl_unit_test(test_atom_golden_full LINK espl_stages TIMEOUT 7200 LABELS slow
               SOURCES atom_golden.c quant_fixture.c prune_fixture.c text_fixture.c golden_data.c)
