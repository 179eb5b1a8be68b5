# A folder has the name of the database.
mkdir -p results/espalier.db
espalier database rebuild
