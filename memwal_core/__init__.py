"""Maintenance for Lance MemWAL tables."""
