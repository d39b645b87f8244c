"""Rows on their way to the WAL, and back from it."""
