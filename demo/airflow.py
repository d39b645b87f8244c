"""An Airflow of the demonstration's own: SQLite and home in its directory, Spark on this machine."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from demo.directory import DemoDirectory
from demo.processes import Command
from memwal_core.errors import InvalidRequestError

MERGE_DAG = "memwal_merge"

_DAG_FILE = "memwal_jobs.py"

# Each job has a JVM of its own for some seconds: compilers and collectors that pay off later would only delay it.
_SHORT_LIVED = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"

_SPARK_DEFAULTS = """\
spark.driver.memory            1g
spark.driver.host              127.0.0.1
spark.driver.bindAddress       127.0.0.1
spark.local.dir                {scratch}
spark.sql.shuffle.partitions   2
spark.ui.enabled               false
spark.driver.extraJavaOptions   {java}
spark.executor.extraJavaOptions {java}
"""

# Whatever else is set up on this machine must neither be used nor changed.
_FOREIGN_PREFIXES = ("AIRFLOW", "_AIRFLOW", "SPARK_", "PYSPARK_")

_SPARK_LOGGING = """\
rootLogger.level = warn
rootLogger.appenderRef.stderr.ref = stderr
appender.stderr.type = Console
appender.stderr.name = stderr
appender.stderr.target = SYSTEM_ERR
appender.stderr.layout.type = PatternLayout
appender.stderr.layout.pattern = %d{HH:mm:ss} %p %c{1}: %m%n
"""

_LOG_LINE = re.compile(r"^\S+ \[(?P<level>\w+) *\] (?P<text>.*?) +\[(?P<logger>[\w.]+)\]")
_TASK_BEGINS = re.compile(r"^\[DAG TEST\] starting task_id=(\S+) map_index=(-?\d+)")
_JOB_LINE = re.compile(r"^(?:INFO|WARNING|ERROR) memwal[\w.]*: (.*)")


@dataclass(frozen=True, slots=True)
class Checkout:
    """The working copy whose DAGs and jobs run.

    Attributes:
        root: Its directory.
    """

    root: Path

    @property
    def dags(self) -> Path:
        """Airflow's DAG folder."""
        return self.root / "dags"

    @property
    def chosen_java(self) -> Path:
        """Where ``make setup`` wrote which Java to use."""
        return self.root / ".java" / "env"


def find_checkout(package: Path) -> Checkout:
    """Find the working copy around the package.

    Args:
        package: Directory of ``memwal_core``.

    Raises:
        InvalidRequestError: The package was installed without the DAGs; run from a working copy.
    """
    checkout = Checkout(package.parent)
    if not (checkout.dags / _DAG_FILE).is_file():
        raise InvalidRequestError(
            "the DAGs are not beside the package",
            remedy="run the demonstration in a working copy, with 'make demo'",
            expected=str(checkout.dags),
        )
    return checkout


def find_java(checkout: Checkout, environment: Mapping[str, str]) -> str | None:
    """Choose the Java for Spark: ``JAVA_HOME``, else the choice of ``make setup``, else what is on ``PATH``.

    Returns:
        The home, or None for the one on ``PATH``.

    Raises:
        InvalidRequestError: There is none.
    """
    if home := environment.get("JAVA_HOME"):
        return home
    if checkout.chosen_java.is_file():
        _, _, written = checkout.chosen_java.read_text().partition("JAVA_HOME=")
        return shlex.split(written)[0]
    if shutil.which("java", path=environment.get("PATH")):
        return None
    raise InvalidRequestError("Spark needs a Java and there is none", remedy="run 'make setup'")


def airflow_environment(
    directory: DemoDirectory, checkout: Checkout, java_home: str | None, inherited: Mapping[str, str]
) -> dict[str, str]:
    """Compose the variables under which Airflow and its tasks run.

    Args:
        directory: The demonstration's.
        checkout: Where the DAGs are.
        java_home: As ``find_java`` returns it.
        inherited: The variables of this process. Those that configure other Airflows and Sparks are left out.
    """
    scripts = str(Path(sys.executable).parent)
    kept = {name: value for name, value in inherited.items() if not name.startswith(_FOREIGN_PREFIXES)}
    own = {
        "PATH": os.pathsep.join([scripts, inherited.get("PATH", os.defpath)]),
        "AIRFLOW_HOME": str(directory.airflow_home),
        "AIRFLOW__CORE__DAGS_FOLDER": str(checkout.dags),
        "AIRFLOW__CORE__PLUGINS_FOLDER": str(checkout.root / "plugins"),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        # On a busy machine a DAG file may need longer than the usual half minute.
        "AIRFLOW__CORE__DAGBAG_IMPORT_TIMEOUT": "300",
        "AIRFLOW__DAG_PROCESSOR__DAG_FILE_PROCESSOR_TIMEOUT": "600",
        "AIRFLOW_CONN_SPARK_DEFAULT": json.dumps(
            {"conn_type": "spark", "host": "local[2]", "extra": {"deploy-mode": "client"}}
        ),
        "MAINTENANCE_RETRIES": "0",
        "MAINTENANCE_TABLES": str(directory.root / "tables.toml"),
        "SPARK_CONF_DIR": str(directory.spark),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
    }
    return {**kept, **own, **({"JAVA_HOME": java_home} if java_home else {})}


def configure_spark(directory: DemoDirectory) -> None:
    """Bound Spark's memory and its talk, and keep it and its files on this machine and in the directory."""
    defaults = _SPARK_DEFAULTS.format(scratch=directory.spark / "scratch", java=_SHORT_LIVED)
    (directory.spark / "spark-defaults.conf").write_text(defaults)
    (directory.spark / "log4j2.properties").write_text(_SPARK_LOGGING)


def register_tables(directory: DemoDirectory, tables: Mapping[str, str]) -> None:
    """Write the registry: names and addresses of the tables that runs may name."""
    entries = [f"[[tables]]\nname = {json.dumps(name)}\nuri = {json.dumps(uri)}\n" for name, uri in tables.items()]
    (directory.root / "tables.toml").write_text("\n".join(entries))


def prepare_airflow(environment: Mapping[str, str]) -> Command:
    """Return the command that makes Airflow's database; the first of all."""
    return Command("airflow-migrate", ("airflow", "db", "migrate"), environment)


def run_merge_dag(environment: Mapping[str, str], table: str, *, name: str) -> Command:
    """Return the command that runs the merge DAG once, without a scheduler.

    Args:
        environment: As ``airflow_environment`` returns it.
        table: Address of the table.
        name: Name of the step, for its log.
    """
    parameters = json.dumps({"table": table})
    return Command(name, ("airflow", "dags", "test", MERGE_DAG, "-c", parameters), environment)


def essence(line: str) -> str | None:
    """Return what people want to see of a line of Airflow's log: tasks, our own messages, errors.

    Args:
        line: As ``airflow dags test`` prints it.

    Returns:
        A short text, or None for everything else.
    """
    found = _LOG_LINE.match(line)
    if found is None:
        return None
    text, logger = found["text"].rstrip(), found["logger"]
    if begins := _TASK_BEGINS.match(text):
        return f"task {begins[1]}" + ("" if begins[2] == "-1" else f" [{begins[2]}]")
    if job_line := _JOB_LINE.match(text):
        return job_line[1]
    if logger.startswith("memwal_core."):
        # One line for each region is for the complete log.
        return None if ": region: " in text else text
    return text if found["level"] in {"error", "critical"} else None
