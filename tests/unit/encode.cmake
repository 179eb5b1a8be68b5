foreach(name IN ITEMS test_row_order_stage test_encode_stage test_encode_wide
                      test_encoded_model)
    espl_unit_test(${name} LINK espl_stages TIMEOUT 300
                   SOURCES encode_fixture.c quant_fixture.c prune_fixture.c)
endforeach()
espl_unit_test(test_encode_plan LINK espl_stages SOURCES plan_fixture.c prune_fixture.c)
espl_unit_test(test_nm_linear LINK espl_stages SOURCES prune_fixture.c)
espl_unit_test(test_pack_plan LINK espl_stages SOURCES plan_fixture.c prune_fixture.c)
espl_unit_test(test_pack_stage LINK espl_stages TIMEOUT 300
               SOURCES search_stage_fixture.c quant_fixture.c prune_fixture.c)
