"""WAL entries: their names, bytes, appending and replay."""
