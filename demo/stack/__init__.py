"""Airflow's servers on this machine, with a table to maintain."""
