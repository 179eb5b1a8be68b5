espalier diff --help
