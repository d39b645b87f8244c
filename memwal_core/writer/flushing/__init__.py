"""When MemTables are full, and how they become flushed MemTables."""
