"""What a command imports before it knows what it shall do: each is paid for by every command."""

from __future__ import annotations

import subprocess
import sys

LOADED_WHEN_NEEDED = {
    "airflow",
    "boto3",
    "datafusion",
    "great_expectations",
    "lance_namespace_urllib3_client",
    "memwal_core.cli.examine.checks",
    "memwal_core.cli.watch.command",
    "memwal_core.jobs.checkpoint.rounds",
    "memwal_core.jobs.gc.plan",
    "memwal_core.observe.health",
    "memwal_core.jobs.thaw.run",
    "memwal_core.observe.doctor",
    "memwal_core.observe.signals",
    "memwal_core.observe.why.reading",
    "pandas",
    "pyspark",
}

START = """
import sys
from memwal_core.cli import main
sys.argv = ["memwal", "merge", "--help"]
try:
    main()
except SystemExit:
    pass
"""


def _after_start(code: str) -> str:
    ran = subprocess.run([sys.executable, "-c", START + code], capture_output=True, text=True, check=True)
    return ran.stdout.splitlines()[-1]


def test_a_command_does_not_import_what_only_some_commands_need() -> None:
    assert _after_start(f"print(sorted({LOADED_WHEN_NEEDED!r} & set(sys.modules)))") == "[]"


def test_a_command_can_still_convert_to_pandas_and_back() -> None:
    """Arrow was imported as if there were no pandas: the first conversion makes it look again."""
    there_and_back = """
import pyarrow as pa
frame = pa.table({"a": [1.5, None]}).to_pandas()
print(pa.table({"a": [1.5, None]}).equals(pa.Table.from_pandas(frame)), pa.array(frame["a"]).null_count)
"""

    assert _after_start(there_and_back) == "True 1"
