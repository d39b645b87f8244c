"""A region manifest: its values and its bytes."""
