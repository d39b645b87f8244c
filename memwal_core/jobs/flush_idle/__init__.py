"""Flushing what writers left behind: rows in WALs that no writer will flush any more.

``survey`` reads signs of life, ``plan`` decides (pure), ``run`` claims, flushes and gives back. The only job that
claims regions; it does so where no writer lives, or on request. May import the writer and what lies below.
"""
