"""The status page: registered tables and their regions, worst first. Reads only.

Owns no state. ``create_app`` builds a web application that knows nothing of Airflow; the plugin
mounts it and brings the permission that every request needs. May import what tasks may.
"""

from memwal_core.page.app import create_app
from memwal_core.page.health import Health, HealthInput, HealthPart, judge_health
from memwal_core.page.source import PageSource, RegisteredSource

__all__ = ["Health", "HealthInput", "HealthPart", "PageSource", "RegisteredSource", "create_app", "judge_health"]
