"""Comparisons of speed. They print what was measured on this machine and claim nothing beyond it."""

import os

# Read when lance is imported: each look at a MemWAL index would log an error, in the middle of the timed part.
os.environ.setdefault("LANCE_LOG", "error,lance::index=off")
