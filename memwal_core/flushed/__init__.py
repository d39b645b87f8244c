"""Flushed MemTables: written by a writer's flush, read by merges and readers."""
