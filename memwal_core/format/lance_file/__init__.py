"""Lance data files: packed and unpacked without a copy."""
