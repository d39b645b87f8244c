"""Rows by where they are: flushed, unflushed, in the base table; and which of them win."""
