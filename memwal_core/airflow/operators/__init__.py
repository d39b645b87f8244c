"""Operators: Spark jobs with the secrets of their storage, leases that are waited for, and work under a lease."""
