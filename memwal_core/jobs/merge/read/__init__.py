"""What a merge reads: flushed MemTables, examined, opened once, and their winning rows."""
