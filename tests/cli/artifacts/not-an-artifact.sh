echo "just a text" >notes.txt
espalier inspect notes.txt
