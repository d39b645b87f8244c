#!/bin/sh
# Fails in an image from which something was taken that the platform needs.
set -eu
AIRFLOW_HOME=$(mktemp -d)
SPARK_LOCAL_DIRS=$(mktemp -d)
export AIRFLOW_HOME SPARK_LOCAL_DIRS
python - <<'PYTHON'
import ctypes
import os
import sysconfig
from pathlib import Path

libraries = [str(path) for path in Path(sysconfig.get_path("purelib")).rglob("*.so*")]
for library in libraries:
    ctypes.CDLL(library, mode=os.RTLD_NOW)
print(f"{len(libraries)} libraries load")
PYTHON
python -c 'import great_expectations, psycopg2, asyncpg'
table=$(mktemp -d)/orders.lance
"$(dirname "$0")/example_table.sh" "$table"
memwal maintain "$table"
source=$(mktemp -d)/orders.csv
printf 'id,customer,cents\n1,new,1\n5000,new,2\n' >"$source"
memwal ingest "$table" "$source" --batch spark --engine spark
memwal quality "$table" --stage both
memwal merge "$table"
memwal count "$table" --json | grep -q '"rows": 1001'
airflow db migrate >/dev/null
airflow dags list-import-errors
