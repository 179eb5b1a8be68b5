espalier bench --help
