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
    "pyspark",
}


def test_a_command_does_not_import_what_only_some_commands_need() -> None:
    code = f"import memwal_core.cli.app, sys; print(sorted({LOADED_WHEN_NEEDED!r} & set(sys.modules)))"

    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert found.stdout.strip() == "[]"
