espl_unit_test(test_atom_stage LINK espl_stages TIMEOUT 300 SOURCES quant_fixture.c prune_fixture.c)
espl_unit_test(test_sparsegpt_stage LINK espl_stages TIMEOUT 300
               SOURCES quant_fixture.c prune_fixture.c)
espl_unit_test(test_quantised_model LINK espl_stages SOURCES prune_fixture.c)
espl_unit_test(test_atom_plan LINK espl_stages SOURCES prune_fixture.c)
espl_unit_test(test_atom_quality LINK espl_stages TIMEOUT 7200 LABELS slow
               SOURCES quant_fixture.c prune_fixture.c golden_data.c)
