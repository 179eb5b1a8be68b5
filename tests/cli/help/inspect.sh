espalier inspect --help
