espalier fetch --help
