"""Copies of a table with an identity of their own."""
