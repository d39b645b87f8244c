"""The `memwal` command: parse, call, show."""
