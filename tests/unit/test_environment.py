"""The environment that the locks promise, and the one that conftest.py sets up for tests."""

from __future__ import annotations

import base64
import hashlib
import re
import socket
import sys
import tomllib
from importlib.metadata import distribution, version
from pathlib import Path

import obstore.store
import pytest
from packaging.requirements import Requirement

from tools.check_locks import EXTRAS

ROOT = Path(__file__).resolve().parents[2]
LOCKED = re.compile(r"^([A-Za-z0-9._-]+)==([^\s;\\]+)", re.M)


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _locked_versions() -> dict[str, str]:
    text = (ROOT / "requirements.lock").read_text()
    return {_normal(name): release for name, release in LOCKED.findall(text)}


def _required() -> list[Requirement]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    groups = project["dependency-groups"]
    extras = [text for name in EXTRAS for text in project["project"]["optional-dependencies"][name]]
    texts = [*project["project"]["dependencies"], *extras, *groups["dev"], *groups["demo"]]
    return [Requirement(text) for text in texts]


@pytest.mark.parametrize("name", ["pyspark", "pyspark-client"])
def test_files_of_spark_are_those_of_both_packages_that_own_them(name: str) -> None:
    """Two packages install the same files; of other versions, whoever comes last would win."""
    package = distribution(name)
    changed = []
    for file in package.files or []:
        if file.suffix != ".py" or file.hash is None:
            continue
        digest = hashlib.new(file.hash.mode, file.locate().read_bytes()).digest()
        if base64.urlsafe_b64encode(digest).rstrip(b"=").decode() != file.hash.value:
            changed.append(str(file))

    assert len(package.files or []) > 300
    assert changed == []


def test_installed_packages_are_the_locked_ones() -> None:
    locked = _locked_versions()
    names = [_normal(need.name) for need in _required() if need.marker is None or need.marker.evaluate()]

    assert {name: version(name) for name in names} == {name: locked[name] for name in names}


def test_oldest_protobuf_that_pip_may_choose_loads_the_generated_messages() -> None:
    """A library older than what generated a message refuses to load it."""
    [need] = [each for each in _required() if each.name == "protobuf"]
    generated = {
        re.search(r"^# Protobuf Python Version: (\S+)$", path.read_text(), re.M)[1]
        for path in (ROOT / "memwal_core" / "format" / "pb").glob("*_pb2.py")
    }

    assert {each.version for each in need.specifier if each.operator == ">="} == generated


def test_python_is_one_that_the_project_supports() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())

    release = ".".join(map(str, sys.version_info[:3]))
    assert Requirement("python" + project["project"]["requires-python"]).specifier.contains(release)


@pytest.mark.parametrize("address", [("192.0.2.1", 80), ("example.org", 443)])
def test_connection_to_another_machine_is_refused(address: tuple[str, int]) -> None:
    with socket.socket() as client, pytest.raises(RuntimeError, match="only connect to this machine"):
        client.connect(address)


def test_connection_to_this_machine_is_allowed() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, socket.socket() as client:
        client.connect(server.getsockname())

        assert client.getpeername() == server.getsockname()


def test_s3_address_without_endpoint_reaches_nobody() -> None:
    store = obstore.store.S3Store("bucket", client_options={"allow_http": True}, retry_config={"max_retries": 0})

    with pytest.raises(Exception, match=r"127\.0\.0\.1:9"):  # the class is not public
        store.head("object")
