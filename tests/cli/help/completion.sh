espalier completion --help
