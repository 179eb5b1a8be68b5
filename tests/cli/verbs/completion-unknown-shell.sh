espalier completion fish
