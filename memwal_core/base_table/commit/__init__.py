"""Everything that commits to the base table."""
