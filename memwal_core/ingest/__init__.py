"""Writing batches of rows through regions exactly once, however many processes try.

State: the records of batches, below ``_mem_wal/_batches`` (docs/format.md). A batch belongs to a stream and has an id
in it. Its rows are divided by region; the rows of one region are a share, written by one task. A task that has claimed
a region reads the records *after* the claim: a recorded share is not written again, and an overtaken attempt is fenced
by the region's epoch. So repeated, speculative and forgotten attempts neither double rows nor bring old values back.

Independent of Spark: ``memwal_core.spark.ingest.frame`` runs this on executors. May import maintenance and everything
below it.
"""
