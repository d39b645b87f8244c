"""Run all jobs of a table, or of all tables of a registry, in the right order.

``spark-submit jobs/maintain.py '{"uri": "s3://bucket/table"}'``
``spark-submit jobs/maintain.py --registry tables.toml``
"""

from __future__ import annotations

import os
import sys

# Lance reads its log filter when it is loaded.
os.environ.setdefault("LANCE_LOG", "error,lance::index=off")

from memwal_core.spark.application import main
from memwal_core.spark.fleet import main as maintain_all

if __name__ == "__main__":
    sys.exit(maintain_all() if any(each.startswith("--") for each in sys.argv[1:]) else main("maintain"))
