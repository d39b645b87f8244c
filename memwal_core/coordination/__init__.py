"""Who works on what, and what became of it."""
