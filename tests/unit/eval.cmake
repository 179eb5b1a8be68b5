espl_unit_test(test_forward LINK espl_eval espl_dep_jansson
               SOURCES checkpoint_model.c golden_data.c)
espl_unit_test(test_perplexity LINK espl_eval espl_dep_jansson
               SOURCES checkpoint_model.c golden_data.c)
espl_unit_test(test_evaluate_stage LINK espl_stages
               SOURCES prune_fixture.c golden_data.c)
espl_unit_test(test_perplexity_full LINK espl_eval espl_datasets espl_dep_jansson
               SOURCES checkpoint_model.c golden_data.c LABELS slow TIMEOUT 3600)
