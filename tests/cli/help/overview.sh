espalier --help
