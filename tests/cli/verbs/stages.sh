espalier stages
