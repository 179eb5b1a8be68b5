espalier stages --help
