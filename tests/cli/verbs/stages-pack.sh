espalier stages nm-pack
