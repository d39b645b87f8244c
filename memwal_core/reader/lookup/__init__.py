"""Rows by primary key."""
