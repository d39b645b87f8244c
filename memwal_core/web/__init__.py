"""The status page: registered tables and their regions, worst first. Reads only.

Owns no state. ``create_app`` builds a web application that knows nothing of Airflow; the plugin
mounts it and brings the permission that every request needs. Imports neither tasks nor commands.
"""

from memwal_core.web.app import create_app
from memwal_core.web.source import PageSource

__all__ = ["PageSource", "create_app"]
