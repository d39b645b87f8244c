"""A region spec: its values and its bytes, and those of region values."""
