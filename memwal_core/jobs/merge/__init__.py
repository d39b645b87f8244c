"""Merging flushed MemTables into the base table.

``plan`` decides (pure), ``survey`` and ``sources`` read, ``commit`` writes, ``run`` drives. Owns
no state: progress lives in the MemWAL index of the base table, and only ``commit`` moves it.
May import base table, manifests, MemTable schema, storage and what lies below.
"""
