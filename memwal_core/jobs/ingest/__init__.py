"""The request of an ingestion; the work is done in ``memwal_core.spark.ingest.job``."""
