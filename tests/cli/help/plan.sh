espalier plan --help
