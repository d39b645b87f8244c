"""Spark: the data source ``memwal`` (``source``), ingestion, and the executor side of merges."""
