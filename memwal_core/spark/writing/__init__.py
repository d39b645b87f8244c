"""The writing half of the data source: tasks stage rows, one process writes them to regions."""
