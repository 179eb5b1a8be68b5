espalier doctor
