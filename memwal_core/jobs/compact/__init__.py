"""Compaction of the base table's fragments, and removal of its old versions.

``plan`` and ``cleanup.plan_cleanup`` decide (pure), ``run`` acts. Owns no state: fragments and
versions are Lance's. May import catch-up, base table and what lies below.
"""
