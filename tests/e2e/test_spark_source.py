"""The data source on a standalone cluster with two workers, the table on an S3 server."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from demo.stack.stack import free_port
from memwal_core.table import Table
from memwal_core.writer import TableWriter
from testkit.processes.spark_cluster import start_spark
from testkit.s3_server import BUCKET, s3_server
from testkit.tables.people import make_people_table, people
from testkit.tables.readable import as_model

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.s3]
DRIVER = Path(__file__).with_name("spark_source_driver.py")


@pytest.mark.req("RD-69")
def test_two_executors_write_stream_and_read_what_one_process_reads(tmp_path: Path) -> None:
    source = tmp_path / "in"
    source.mkdir()
    pq.write_table(people(*range(100, 600), name="stream"), source / "1.parquet")
    variables = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
    with s3_server() as s3, ExitStack() as cleanup:
        table = make_people_table(
            f"s3://{BUCKET}/people.lance", rows=people(*range(1000)), storage_options=s3.storage_options
        )
        with TableWriter.open(table) as writer:
            writer.put(people(*range(50), name="flushed"))
            writer.flush()
        master = free_port()
        start_spark(cleanup, tmp_path, variables, master, free_port())
        arguments = [f"spark://127.0.0.1:{master}", table.uri, json.dumps(dict(s3.storage_options)), source]
        finished = subprocess.run(
            [sys.executable, str(DRIVER), *map(str, arguments), tmp_path / "checkpoint", tmp_path / "scratch"],
            env=variables,
            check=False,
            capture_output=True,
            text=True,
            timeout=1200,
        )
        assert finished.returncode == 0, finished.stderr[-3000:]
        found = json.loads(finished.stdout.splitlines()[-1])

        here = as_model(Table.open(table.uri, storage_options=s3.storage_options).to_arrow())
        expected = {key: f"p{key}" for key in range(500)} | dict.fromkeys(range(50), "flushed")
        expected |= dict.fromkeys(range(500, 3000), "batch") | dict.fromkeys(range(100, 600), "stream")
        assert here == expected
        assert found["counts"]["stream"] == 500
        assert sum(found["counts"].values()) == len(expected)
        assert found["total"] == sum(expected)
        assert found["tasks"] >= 4
        assert found["executors"] == 2
