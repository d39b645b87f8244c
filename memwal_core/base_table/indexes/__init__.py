"""Indexes of the base table: what they cover, what they are made of, building them again."""
