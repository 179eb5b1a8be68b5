espalier gc --help
