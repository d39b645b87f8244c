"""The status page for an Airflow whose plugin folder this is; elsewhere the installed package brings it by itself."""

from memwal_core.airflow.page import MemwalPage

__all__ = ["MemwalPage"]
