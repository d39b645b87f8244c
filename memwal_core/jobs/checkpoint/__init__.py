"""Flush and merge until nothing waits: two jobs of the catalog, one after the other.

Not a job of its own: each of the two has its lease, its history and its DAG. May import jobs.
"""
