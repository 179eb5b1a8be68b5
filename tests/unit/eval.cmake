espl_unit_test(test_forward LINK espl_eval espl_dep_jansson
               SOURCES checkpoint_model.c golden_data.c)
espl_unit_test(test_perplexity LINK espl_eval espl_dep_jansson
               SOURCES checkpoint_model.c golden_data.c)
espl_unit_test(test_evaluate_stage LINK espl_stages
               SOURCES prune_fixture.c golden_data.c)
espl_unit_test(test_perplexity_full LINK espl_eval espl_datasets espl_dep_jansson
               SOURCES checkpoint_model.c golden_data.c LABELS slow TIMEOUT 3600)
espl_unit_test(test_host_decode LINK espl_stages
               SOURCES prune_fixture.c checkpoint_model.c golden_data.c)
espl_unit_test(test_device_decode LINK espl_eval espl_dep_jansson
               SOURCES device_reference.c
               ${PROJECT_SOURCE_DIR}/stages/iebme_encode/random_model.c
               ${PROJECT_SOURCE_DIR}/stages/quant_common/channel_order.c LABELS gpu TIMEOUT 900)
espl_unit_test(test_device_vision LINK espl_stages LABELS gpu TIMEOUT 300
               SOURCES search_stage_fixture.c quant_fixture.c prune_fixture.c)
