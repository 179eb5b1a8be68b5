espalier stages magnitude-prune
