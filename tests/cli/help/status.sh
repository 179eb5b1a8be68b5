espalier status --help
