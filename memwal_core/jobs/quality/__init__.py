"""The request of the data-quality checks, and a digest of suites; Spark does the work (``memwal_core.spark``)."""
