espalier why --help
