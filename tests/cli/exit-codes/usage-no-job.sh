espalier run
