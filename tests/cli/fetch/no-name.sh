espalier fetch
