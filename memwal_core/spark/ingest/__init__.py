"""Writing a DataFrame into the regions of a table, exactly once per batch."""
