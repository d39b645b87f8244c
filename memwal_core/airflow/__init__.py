"""What Airflow itself needs to know of this package: the connection type ``lance``.

Owns no state. Airflow loads this module in each of its processes, so it imports nothing.
"""

from __future__ import annotations


def get_provider_info() -> dict[str, object]:
    """Describe the package to Airflow's provider manager (entry point ``apache_airflow_provider``)."""
    return {
        "package-name": "memwal-core",
        "name": "MemWAL maintenance",
        "description": "Background maintenance for Lance MemWAL tables.",
        "connection-types": [
            {"connection-type": "lance", "hook-class-name": "memwal_core.airflow.hook.LanceHook"},
        ],
    }
