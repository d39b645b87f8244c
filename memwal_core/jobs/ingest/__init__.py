"""The request of an ingestion; Spark does the work (``memwal_core.spark``)."""
