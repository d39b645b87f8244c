"""Index catch-up: base table indexes over merged rows, and the record of how far they are.

``plan`` decides (pure), ``extend`` and ``run`` act. Owns the ``index_catchup`` field of the MemWAL
index, next to Lance, which writes it in its own index commits. May import base table and what lies
below.
"""
