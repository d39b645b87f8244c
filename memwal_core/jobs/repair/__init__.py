"""Repairs: what was damaged is made anew from what is left, with a copy of everything that is touched.

``generations`` finds damaged flushed MemTables and what their rows can be made from, ``duplicates`` keys that occur
twice in the base table and which copy is the newest. Owns ``_mem_wal_repair/`` beside ``_mem_wal/``. May import the
writer's layout and flush.
"""
