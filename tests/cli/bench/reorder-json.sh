# The schema; what it measures is the machine's, but it is not nothing.
espalier bench reorder --json >out.json
json_get --keys . <out.json
json_get --keys .rows.0 <out.json
json_get --keys .rows.0.share <out.json
json_get .rows.0.row_areas <out.json
for figure in .tiles_per_second_per_core .tiles_per_second .opt_13b_seconds .rows.0.oracle_tiles_per_second; do
    case $(json_get $figure <out.json) in
    [1-9]*) echo "$figure is there" ;;
    0.*[1-9]*) echo "$figure is there" ;;
    *) echo "$figure: $(json_get $figure <out.json)" ;;
    esac
done
