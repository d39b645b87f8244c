"""Verify that a table holds every primary key once.

``spark-submit jobs/verify.py '{"uri": "s3://bucket/table"}'``
"""

from __future__ import annotations

import os
import sys

# Lance reads its log filter when it is loaded.
os.environ.setdefault("LANCE_LOG", "error,lance::index=off")

from memwal_core.spark.application import main

if __name__ == "__main__":
    sys.exit(main("verify"))
