"""Clone a table: ``spark-submit jobs/clone.py '{"uri": "s3://bucket/table", "request": {"target": "s3://bucket/copy"}}'``."""

from __future__ import annotations

import os
import sys

# Lance reads its log filter when it is loaded.
os.environ.setdefault("LANCE_LOG", "error,lance::index=off")

from memwal_core.spark.application import main

if __name__ == "__main__":
    sys.exit(main("clone"))
