"""Stores, tables and rivals that fail where a test says so."""
