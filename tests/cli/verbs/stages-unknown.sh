espalier stages wanda-prun
