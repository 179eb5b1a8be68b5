espalier database --help
