"""Versions of the base table: which exist, who needs them, what changed between them."""
