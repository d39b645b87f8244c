"""Spark helpers of the jobs."""
