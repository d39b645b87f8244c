"""Queries over the MemTables of one writer."""
