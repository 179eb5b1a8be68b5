# The registry, the cache of fetched files, and the parts of espalier-fetch that need no server.
espl_unit_test(test_registry LINK espl_registry)
espl_unit_test(test_cache LINK espl_datasets)
espl_unit_test(test_subset LINK espl_datasets)
espl_unit_test(test_fetch_progress LINK espl_cli)
if(TARGET espl_fetch)
    espl_unit_test(test_fetch_parsers LINK espl_fetch)
endif()
