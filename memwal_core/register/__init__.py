"""The versioned register: numbered immutable versions, put-if-absent, hint, probe forward.

The one compare-and-swap primitive; it knows nothing of regions.
"""
