espalier schema --help
