# The stages' method files need neither the engine nor other stages, so their tests link them alone.
add_library(espl_test_model STATIC model_fixture.c
    ${PROJECT_SOURCE_DIR}/stages/import/import_checkpoint.c
    ${PROJECT_SOURCE_DIR}/stages/import/import_explain.c
    ${PROJECT_SOURCE_DIR}/stages/import/import_match.c
    ${PROJECT_SOURCE_DIR}/stages/import/import_transfer.c
    ${PROJECT_SOURCE_DIR}/stages/export/export_manifest.c
    ${PROJECT_SOURCE_DIR}/stages/export/export_write.c)
target_include_directories(espl_test_model PUBLIC ${PROJECT_SOURCE_DIR}/tests)
target_link_libraries(espl_test_model PUBLIC espl_model espl_dep_cmocka)

espl_unit_test(test_import LINK espl_test_model SOURCES import_fixture.c)
espl_unit_test(test_import_fit LINK espl_test_model SOURCES import_fixture.c)
espl_unit_test(test_export LINK espl_test_model)
espl_unit_test(test_synth LINK espl_test_model)
espl_unit_test(test_random_model LINK espl_test_model SOURCES
    ${PROJECT_SOURCE_DIR}/stages/iebme_encode/random_model.c
    ${PROJECT_SOURCE_DIR}/stages/quant_common/channel_order.c)
espl_unit_test(test_model_view LINK espl_test_model)
espl_unit_test(test_safetensors LINK espl_test_model)
espl_unit_test(test_model_config LINK espl_model m)
espl_unit_test(test_arch LINK espl_model)
espl_unit_test(test_element LINK espl_model m)
