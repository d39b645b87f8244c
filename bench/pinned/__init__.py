"""Jobs on Spark executors that are bound to one core each, beside the same jobs in one process on one core."""
