"""Collecting garbage: what nobody needs any more, after proof, and nothing on doubt.

One module per kind of garbage plans purely (``flushed``, ``directories``, ``wal_entries``,
``versions``, ``leftovers``, ``staged_keys``, ``staged_rows``, ``batch_records``); ``survey`` reads,
``frozen`` finds states that do not fit together, ``deleter`` is the only place that changes anything.
Owns no state: that a directory was drained, and when, is told by the versions of the region manifest.
May import base table, manifests, index, register, storage and what lies below.
"""
