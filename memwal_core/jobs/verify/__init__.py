"""Verification: the whole base table holds every primary key once, counted in this process or on executors."""
