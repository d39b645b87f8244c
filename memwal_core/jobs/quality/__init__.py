"""The request of the data-quality checks; Spark does the work (``memwal_core.spark``)."""
