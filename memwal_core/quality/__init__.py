"""Data-quality checks: of flushed MemTables before a merge, of the base table after it.

State: the quarantine (``memwal_core.region.quarantine``) and the newest report of each stage, below
``_mem_wal/_quality``. ``run`` and what it imports need Spark and Great Expectations, so this package does not
re-export it: only the job imports it. May import maintenance.
"""
