"""Processes that tests start, watch and kill."""
