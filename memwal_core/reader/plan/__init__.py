"""Where the rows of a table are, and which of them a read touches."""
