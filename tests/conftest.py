"""What holds for every test: a known environment, no network, one process for the JVM."""

from __future__ import annotations

import gc
import ipaddress
import os
import re
import shlex
import socket
import sys
import warnings
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, is_hypothesis_test, settings
from xdist.scheduler import LoadFileScheduling

ROOT = Path(__file__).resolve().parent.parent
NOBODY_LISTENS = "http://127.0.0.1:9"
SLOW_TIMEOUT_S = 900
"""Of slow tests and those with a JVM or Airflow, instead of the limit in pyproject.toml. A test that hangs has to be
told while the check still runs; ``PYTEST_ARGS=--timeout=7200`` allows longer ones."""
LONG_TIMEOUT_S = 4 * 3600
"""Of tests that search or simulate for long."""


def _prepare_environment() -> None:
    """Set what libraries read when they are imported or started, before any test module is."""
    java = ROOT / ".java" / "env"
    if "JAVA_HOME" not in os.environ and java.is_file():
        os.environ["JAVA_HOME"] = shlex.split(java.read_text().partition("=")[2])[0]
    os.environ.update(
        # Lance reports the MemWAL index, which has no fields, as an error on each index call.
        LANCE_LOG="error,lance::index=off",
        SPARK_LOCAL_IP="127.0.0.1",
        # A JVM of the tests lives for seconds: without what pays off later it starts with 12 instead of 20 s of work.
        SPARK_SUBMIT_OPTS="-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        SPARK_DAEMON_JAVA_OPTS="-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        PYSPARK_PYTHON=sys.executable,
        PYSPARK_DRIVER_PYTHON=sys.executable,
        PATH=os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)]),
        # An S3 address without an endpoint would go to the real service; here it is refused.
        AWS_EC2_METADATA_DISABLED="true",
        AWS_ENDPOINT_URL=NOBODY_LISTENS,
        AWS_DEFAULT_REGION="us-east-1",
        AWS_ACCESS_KEY_ID="test",
        AWS_SECRET_ACCESS_KEY="test",
    )
    main = sys.modules["__main__"]
    if not hasattr(main, "__file__"):
        # PySpark takes a main module without a file, as a parallel test process has, for its own
        # doctests, and ends the process when a package for Spark Connect is missing.
        main.__file__ = __file__
    for name in [name for name in os.environ if name.startswith("MEMWAL_")]:
        del os.environ[name]


_prepare_environment()

# The same examples every time, and no verdict that depends on how fast this machine is.
settings.register_profile("memwal", derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("memwal")
EXAMPLES_TIMES = int(os.environ.get("EXAMPLES_TIMES", "1"))
"""Above 1, properties are tried with fresh inputs, and so many times as many; failures print how to see them again."""


class NetworkRefusedError(RuntimeError):
    """A test tried to leave this machine."""


def _refuse_strangers(family: int, address: Any) -> None:
    if family not in (socket.AF_INET, socket.AF_INET6):
        return
    host = str(address[0])
    try:
        local = host in ("", "localhost") or ipaddress.ip_address(host).is_loopback
    except ValueError:
        local = False
    if not local:
        raise NetworkRefusedError(f"tests may only connect to this machine, not to {host}")


@pytest.fixture(scope="session", autouse=True)
def only_loopback() -> Iterator[None]:
    """Refuse Python sockets to other machines for the whole run."""
    with pytest.MonkeyPatch.context() as patch:
        for name in ("connect", "connect_ex"):
            original = getattr(socket.socket, name)

            def guarded(self: socket.socket, address: Any, original: Any = original) -> Any:
                _refuse_strangers(self.family, address)
                return original(self, address)

            patch.setattr(socket.socket, name, guarded)
        yield


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item) -> Iterator[None]:
    """Collect what PySpark leaves open while its test lasts: later it would become the failure of some other test."""
    yield
    if item.get_closest_marker("spark"):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ResourceWarning)
            gc.collect()


@cache
def _uses_spark_session(path: Path) -> bool:
    """Return whether a test or fixture of the file takes the fixture ``spark``."""
    return re.search(r"^def \w+\([^)]*\bspark\b", path.read_text(encoding="utf-8"), re.M) is not None


class _ByFileAndSession(LoadFileScheduling):
    """Keeps the tests of a file in one process, and all files that use the Spark session: a JVM takes long to start."""

    def _split_scope(self, nodeid: str) -> str:
        file = super()._split_scope(nodeid)
        return "spark session" if _uses_spark_session(self.config.rootpath / file) else file


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> LoadFileScheduling | None:
    return _ByFileAndSession(config, log) if config.getvalue("dist") == "loadfile" else None


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Spare the garbage collector what imports and collection make: it stays, and a pass takes half a second."""
    gc.disable()
    try:
        yield
    finally:
        gc.collect()
        gc.freeze()
        gc.enable()


def _search_afresh(items: list[pytest.Item]) -> None:
    """Let properties search among inputs that nobody has tried, and longer; all cases of one share its settings."""
    properties: dict[Any, None] = {}
    for item in items:
        test: Any = getattr(item, "obj", None)
        if test is not None and is_hypothesis_test(test):
            properties[getattr(test, "__func__", test)] = None
            item.add_marker(pytest.mark.timeout(LONG_TIMEOUT_S))
    for test in properties:
        # The decorator of a test wins over any profile, so that its own settings have to change.
        own = test._hypothesis_internal_use_settings
        test._hypothesis_internal_use_settings = settings(
            own, derandomize=False, max_examples=own.max_examples * EXAMPLES_TIMES, print_blob=True
        )


def _put_longest_first(items: list[pytest.Item]) -> None:
    """Let files begin first that keep a process busy longest: of Airflow's servers, the Spark session, slow tests."""
    servers = {item.path for item in items if "servers" in getattr(item, "fixturenames", ())}
    slow = {item.path for item in items if item.get_closest_marker("slow")}
    items.sort(key=lambda it: (it.path not in servers, not _uses_spark_session(it.path), it.path not in slow))


def _timeout_s(item: pytest.Item) -> int | None:
    """Return how long a test may take; None for the usual time."""
    if item.get_closest_marker("long"):
        return LONG_TIMEOUT_S
    return SLOW_TIMEOUT_S if any(map(item.get_closest_marker, ("slow", "spark", "airflow"))) else None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Put the longest shares first, and give tests the time that their kind needs, unless somebody says how much."""
    _put_longest_first(items)
    if EXAMPLES_TIMES > 1:
        _search_afresh(items)
        return
    for item in items:
        if config.getoption("timeout") is None and (longest := _timeout_s(item)):
            item.add_marker(pytest.mark.timeout(longest))
