# Image models: architectures and import, forward pass, pictures, the images stage.
set(vision_support SOURCES vision_fixture.c golden_data.c)
espl_unit_test(test_vision LINK espl_test_model espl_eval espl_dep_jansson m ${vision_support})
espl_unit_test(test_arch_vision LINK espl_model espl_dep_jansson m)
espl_unit_test(test_vision_import LINK espl_test_model espl_eval espl_dep_jansson ${vision_support})
# The masks are those of the supernet stage, so its file of numerics is linked alone.
set(vision_golden_support SOURCES vision_golden.c vision_fixture.c golden_data.c
    ${PROJECT_SOURCE_DIR}/stages/nm_supernet/nm_rank.c)
espl_unit_test(test_vision_golden LINK espl_test_model espl_eval espl_datasets espl_dep_jansson m
               ${vision_golden_support} LABELS unit plain TIMEOUT 600)
espl_unit_test(test_vision_golden_full LINK espl_test_model espl_eval espl_datasets
               espl_dep_jansson m ${vision_golden_support} LABELS slow TIMEOUT 7200)
espl_unit_test(test_images LINK espl_datasets espl_dep_jansson SOURCES golden_data.c)
espl_unit_test(test_image_sources LINK espl_datasets espl_dep_archive SOURCES archive_fixture.c)
espl_unit_test(test_image_keep LINK espl_datasets)
espl_unit_test(test_images_stage LINK espl_stages SOURCES prune_fixture.c golden_data.c)
espl_unit_test(test_wanda_images LINK espl_stages SOURCES prune_fixture.c)
