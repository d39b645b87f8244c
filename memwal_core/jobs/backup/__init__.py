"""Consistent, self-contained copies of a table, while it is written to."""
