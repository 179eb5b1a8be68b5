espalier stages row-reorder
espalier stages iebme-encode
