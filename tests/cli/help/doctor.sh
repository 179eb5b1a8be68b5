espalier doctor --help
