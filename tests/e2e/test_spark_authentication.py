"""A cluster as ``deploy/spark-defaults.conf`` makes it runs applications that have its secret, and no others."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from contextlib import ExitStack
from pathlib import Path

import pyspark
import pytest

from demo.stack.stack import free_port
from testkit.processes.spark_cluster import ask, start_spark, until

pytestmark = [pytest.mark.spark, pytest.mark.slow]
DEPLOY = Path(__file__).parents[2] / "deploy"
DRIVER = Path(__file__).with_name("spark_authentication_driver.py")
REFUSED = "Failed to connect to master"


def _configuration(folder: Path, text: str) -> Path:
    folder.mkdir()
    (folder / "spark-defaults.conf").write_text(f"{text}\nspark.executor.memory 512m\nspark.ui.enabled false\n")
    return folder


def _submit(configuration: Path, master: int, cleanup: ExitStack) -> tuple[subprocess.Popen[str], Path]:
    variables = {**os.environ, "SPARK_CONF_DIR": str(configuration), "SPARK_LOCAL_IP": "127.0.0.1"}
    command = [str(Path(pyspark.__file__).parent / "bin" / "spark-submit"), "--master", f"spark://127.0.0.1:{master}"]
    log = configuration / "log"
    sink = cleanup.enter_context(log.open("w"))
    process = subprocess.Popen([*command, str(DRIVER)], env=variables, stdout=subprocess.PIPE, stderr=sink, text=True)
    cleanup.callback(process.communicate)
    cleanup.callback(process.kill)
    return process, log


def test_an_application_without_the_secret_is_refused(tmp_path: Path) -> None:
    for name in ("make_secrets.sh", "spark-defaults.conf"):
        shutil.copy(DEPLOY / name, tmp_path)
    subprocess.run([tmp_path / "make_secrets.sh"], check=True, capture_output=True)
    made = (tmp_path / "secrets" / "spark-defaults.conf").read_text()
    common = (DEPLOY / "spark-defaults.conf").read_text()
    own = _configuration(tmp_path / "own", made)
    none = _configuration(tmp_path / "none", "")
    other = _configuration(tmp_path / "other", f"{common}spark.authenticate.secret {'0' * 64}")
    with ExitStack() as cleanup:
        master, ui = free_port(), free_port()
        start_spark(cleanup, tmp_path, {**os.environ, "SPARK_CONF_DIR": str(own)}, master, ui)

        refused = [_submit(each, master, cleanup) for each in (none, other)]
        until(lambda: all(REFUSED in log.read_text() for _, log in refused), 300)
        for process, _ in refused:
            process.kill()
        allowed, log = _submit(own, master, cleanup)
        said, _ = allowed.communicate(timeout=300)

        assert allowed.returncode == 0, log.read_text()[-3000:]
        assert json.loads(said.splitlines()[-1]) == {"sum": 45, "seen": 0}
        state = ask(f"http://127.0.0.1:{ui}/json/")
        assert len(state["activeapps"]) + len(state["completedapps"]) == 1
