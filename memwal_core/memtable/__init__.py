"""Rows that are written but not yet flushed."""
