"""Flushed MemTables in place of what a base table index has not caught up with."""
