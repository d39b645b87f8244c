"""Changing what a table with MemWAL is configured to do: region specs, and the indexes that MemTables maintain.

``replacement`` decides (pure), ``run`` acts. Owns no state: the configuration is part of the MemWAL
index, and every change is one strict commit that keeps progress, catch-up and snapshots. May import
base table, manifests, index and what lies below.
"""
