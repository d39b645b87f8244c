"""The MemWAL index builder: one snapshot of all regions for readers, and fresh WAL hints.

``plan`` decides (pure), ``survey`` reads, ``run`` writes. Owns the snapshot fields of the MemWAL
index and nothing else; region manifests stay the truth. May import base table, manifests, WAL and
what lies below.
"""
