"""Turning a MemTable into a flushed MemTable without copying rows."""
