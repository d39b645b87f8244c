"""Whether the files of a table can be read, which the doctor tells and a relocation requires. Reads only."""
