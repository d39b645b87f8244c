"""Spark: the data source ``memwal`` (``source``), ingestion, and what merges do on executors."""
