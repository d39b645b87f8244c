#!/bin/sh
# Makes a table of a thousand orders that wait for a merge, unless it is there. Usage: example_table.sh URI
set -eu
uri=$1
source=$(mktemp -d)/orders.parquet
python - "$source" <<'PYTHON'
import sys

import pyarrow as pa
import pyarrow.parquet as pq

numbers = range(1000)
orders = pa.table({
    "id": pa.array(numbers, pa.int64()),
    "customer": pa.array([f"customer {number % 97}" for number in numbers]),
    "cents": pa.array([number * 37 % 10_000 for number in numbers], pa.int64()),
})
pq.write_table(orders, sys.argv[1])
PYTHON
memwal schema "$uri" >/dev/null 2>&1 || memwal create "$uri" --like "$source" --key id --buckets 2
memwal ingest "$uri" "$source" --batch example --ok-when-nothing
