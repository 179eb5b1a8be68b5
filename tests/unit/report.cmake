# Tests of pipeline/report and of the verbs that show things.
espl_unit_test(test_svg LINK espl_report SOURCES xml_check.c)
espl_unit_test(test_report LINK espl_report espl_dep_jansson SOURCES xml_check.c)
espl_unit_test(test_tensor_values LINK espl_cli)
espl_unit_test(test_completion LINK espl_cli)
if(TARGET espalier)
    add_dependencies(test_completion espalier)
endif()
