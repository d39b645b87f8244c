"""Runs name what the registry knows; free addresses, files, formats and options are refused."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memwal_core.errors import InvalidRequestError
from memwal_core.jobs.backup.request import BackupRequest
from memwal_core.jobs.catalog import REQUESTS
from memwal_core.jobs.ingest.request import IngestRequest, SourceFormat
from memwal_core.jobs.quality.request import QualityRequest
from memwal_core.jobs.request import Grant
from memwal_core.registry import Registry, admit, parse_registry
from memwal_core.registry.admit import granted_fields

TEXT = """
[docs]
main = "s3://lake/quality"

[[tables]]
name = "people"
uri = "s3://lake/people.lance"

[[tables]]
name = "orders"
uri = "s3://lake/orders.lance"

[[sources]]
name = "landing"
address = "s3://lake/landing/"
format = "csv"
options = { header = "true" }
tables = ["people"]

[[sources]]
name = "events"
address = "prod.events"
format = "table"
"""

PLAIN_TEXTS = {"batch", "stream", "order_by", "delete_column", "regions", "indexes"}
"""Fields of requests whose texts name columns, ids and indexes: nothing that a worker would open."""


@pytest.fixture
def registry(tmp_path: Path) -> Registry:
    folder = tmp_path / "suites"
    folder.mkdir()
    for name in ("rows.json", "rows.py"):
        (folder / name).touch()
    (tmp_path / "outside.py").touch()
    (folder / "link.py").symlink_to(tmp_path / "outside.py")
    return parse_registry(TEXT, str(tmp_path / "tables.toml"))


def _ingest(registry: Registry, table: str = "people", **asked: Any) -> IngestRequest:
    return admit(IngestRequest(**asked), registry.find(table), registry)


def test_a_name_becomes_what_the_registry_says(registry: Registry, tmp_path: Path) -> None:
    found = _ingest(registry, sources=("landing/2026/11/*.csv", "landing"), suites=("rows.py",))

    assert found.sources == ("s3://lake/landing/2026/11/*.csv", "s3://lake/landing")
    assert (found.format, found.options) == (SourceFormat.CSV, {"header": "true"})
    assert found.suites == (str(tmp_path / "suites" / "rows.py"),)


def test_a_table_of_a_catalog_is_named_by_the_catalog(registry: Registry) -> None:
    assert _ingest(registry, "orders", sources=("events/clicks",)).sources == ("prod.events.clicks",)


@pytest.mark.parametrize(
    "sources",
    [
        ("/etc/passwd",), ("s3://lake/landing/a.csv",), ("file:///etc/passwd",), ("--suite",), ("--json=/etc/x",),
        ("landing/../other",), ("landing/./a",), ("landing//a",), ("landing/%2e%2e/a",), ("landing/{..,a}/b",),
        ("landing/a[.]b",), ("landing/a\\b",), ("landing/a\nb",), ("landing/a#b",), ("nowhere/a",),
        ("landing/a.csv", "events/clicks"), ("events/a;b",), ("events/../x",), ("events/a b",), ("events/`x`",),
        ("events/a\n",), ("events\n",), ("landing/\0",), ("\0",), ("landing/a\u2028/../b",),
        ("landing/a.csv\n",), ("landing/a\n/b",),
    ],
)  # fmt: skip
def test_free_sources_are_refused(registry: Registry, sources: tuple[str, ...]) -> None:
    with pytest.raises(InvalidRequestError):
        _ingest(registry, sources=sources)


@pytest.mark.parametrize(
    "asked",
    [
        {"format": "text"}, {"format": "json"}, {"options": {"path": "/etc"}}, {"options": {"header": "false"}},
        {"suites": ("/tmp/x.py",)}, {"suites": ("../outside.py",)}, {"suites": ("link.py",)},
        {"suites": ("missing.json",)}, {"suites": ("rows.py\0.json",)}, {"suites": ("./.py",)},
    ],
)  # fmt: skip
def test_reader_options_and_suites_of_a_runs_own_are_refused(registry: Registry, asked: dict[str, Any]) -> None:
    with pytest.raises(InvalidRequestError):
        _ingest(registry, sources=("landing",), **asked)


@settings(max_examples=100, derandomize=True, deadline=None, database=None)
@given(
    st.text(st.sampled_from("/.*?a\\%\0\n:{[~") | st.characters(), max_size=12), st.sampled_from(["landing", "events"])
)
def test_any_text_is_refused_or_stays_within_what_is_registered(text: str, source: str) -> None:
    registry = parse_registry(TEXT, "/nowhere/tables.toml")
    table = "people" if source == "landing" else "orders"
    try:
        (found,) = _ingest(registry, table, sources=(f"{source}/{text}",)).sources
    except InvalidRequestError:
        pass
    else:
        assert found.startswith({"landing": "s3://lake/landing", "events": "prod.events"}[source])
        assert not {".", "..", ""} & set(found.removeprefix("s3://").split("/"))
        assert not set(found) & set("\\%\0\n{[#")
    with pytest.raises(InvalidRequestError):
        _ingest(registry, table, sources=(source,), suites=(f"{text}.json",))


def test_a_source_of_other_tables_is_refused(registry: Registry) -> None:
    with pytest.raises(InvalidRequestError, match="may not be written to this table"):
        _ingest(registry, "orders", sources=("landing",))


def test_pages_are_written_only_to_registered_targets(registry: Registry) -> None:
    table = registry.find("people")

    assert admit(QualityRequest(docs="main"), table, registry).docs == "s3://lake/quality"
    assert admit(QualityRequest(), table, registry).docs == ""
    with pytest.raises(InvalidRequestError, match="not registered"):
        admit(QualityRequest(docs="s3://elsewhere/x"), table, registry)


def test_a_link_below_a_local_source_does_not_lead_out(tmp_path: Path) -> None:
    landing, secret = tmp_path / "landing", tmp_path / "secret"
    for folder in (landing, secret):
        folder.mkdir()
    (landing / "link").symlink_to(secret)
    text = f'single_user = true\n[[sources]]\nname = "landing"\naddress = "{landing}"\nformat = "csv"\n'
    registry = parse_registry(text, str(tmp_path / "tables.toml"))

    assert _ingest(registry, "/x.lance", sources=("landing/a.csv",)).sources == (f"{landing}/a.csv",)
    (secret / "a.csv").touch()
    (landing / "b.csv").symlink_to(secret / "a.csv")
    for leads_out in ("link/a.csv", "lin?/a.csv", "*/*.csv", "*", "b.*", "lin?"):
        with pytest.raises(InvalidRequestError, match="symbolic link"):
            _ingest(registry, "/x.lance", sources=(f"landing/{leads_out}",))
    (landing / "c.csv").touch()
    assert _ingest(registry, "/x.lance", sources=("landing/c*",)).sources == (f"{landing}/c*",)


def test_a_single_user_opens_the_door_but_not_for_suites(tmp_path: Path) -> None:
    """Suites in JSON have conditions that pandas and Spark evaluate: with them, a file ran commands of the system."""
    registry = parse_registry("single_user = true", str(tmp_path / "tables.toml"))
    (tmp_path / "x.json").write_text("{}")

    assert _ingest(registry, "/data/people.lance", sources=("/data/a.csv",)).sources == ("/data/a.csv",)
    for suite in (str(tmp_path / "x.json"), "/data/x.json", "/data/x.py", "../x.json"):
        with pytest.raises(InvalidRequestError, match="not registered"):
            _ingest(registry, "/data/people.lance", sources=("/data/a.csv",), suites=(suite,))


@pytest.mark.parametrize("writable", ["rows.py", ".", "below", "below/rows.py", ".."])
def test_suites_that_everybody_may_write_are_refused(registry: Registry, tmp_path: Path, writable: str) -> None:
    folder = tmp_path / "suites"
    (folder / "below").mkdir()
    (folder / "below" / "rows.py").touch()
    name = "below/rows.py" if "below" in writable else "rows.py"
    assert _ingest(registry, sources=("landing",), suites=(name,)).suites == (str(folder / name),)
    (folder / writable).chmod(0o777)

    with pytest.raises(InvalidRequestError, match="every user of this machine may write"):
        _ingest(registry, sources=("landing",), suites=(name,))


def test_suites_below_a_sticky_directory_are_admitted_unless_it_is_the_folder(
    registry: Registry, tmp_path: Path
) -> None:
    tmp_path.chmod(0o1777)
    assert _ingest(registry, sources=("landing",), suites=("rows.py",)).suites
    (tmp_path / "suites").chmod(0o1777)

    with pytest.raises(InvalidRequestError, match="every user of this machine may write"):
        _ingest(registry, sources=("landing",), suites=("rows.py",))


@pytest.mark.parametrize("kind", ["a link to a folder outside", "a loop of links", "a pipe", "a folder"])
def test_a_suite_is_a_file_inside_the_folder(registry: Registry, tmp_path: Path, kind: str) -> None:
    folder = tmp_path / "suites"
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "rows.py").touch()
    (folder / "out").symlink_to(tmp_path / "elsewhere")
    (folder / "loop.py").symlink_to(folder / "loop.py")
    os.mkfifo(folder / "pipe.py")
    (folder / "folder.py").mkdir()
    (folder / "folder.py" / "__main__.py").touch()
    name = {
        "a link to a folder outside": "out/rows.py",
        "a loop of links": "loop.py",
        "a pipe": "pipe.py",
        "a folder": "folder.py",
    }[kind]

    with pytest.raises(InvalidRequestError, match="not registered"):
        _ingest(registry, sources=("landing",), suites=(name,))


def test_every_text_of_a_request_is_granted_or_opens_nothing() -> None:
    for kind in (request for request in REQUESTS if not request.info.by_hand):
        schema = kind.model_json_schema()
        texts = {name for name, field in schema["properties"].items() if _is_free_text(field, schema)}
        assert texts - set(granted_fields(kind).values()) <= PLAIN_TEXTS, kind.info.name
    assert set(granted_fields(IngestRequest)) == set(Grant) - {Grant.DOCS}


def test_jobs_that_only_people_start_are_refused(registry: Registry) -> None:
    """They may name any address, so that no run of somebody else may ask for them."""
    assert {"relocate", "backup", "clone", "repair"} == {kind.info.name for kind in REQUESTS if kind.info.by_hand}
    with pytest.raises(InvalidRequestError, match="only people start"):
        admit(BackupRequest(target="/tmp/stolen"), registry.find("people"), registry)


def _is_free_text(field: dict[str, Any], schema: dict[str, Any]) -> bool:
    """Whether a field can hold a text that is not one of a few."""
    if "$ref" in field:
        return "enum" not in schema["$defs"][field["$ref"].rpartition("/")[2]]
    parts = [*field.get("anyOf", ()), field.get("items"), field.get("additionalProperties")]
    return field.get("type") == "string" or any(
        isinstance(part, dict) and _is_free_text(part, schema) for part in parts
    )


@pytest.mark.parametrize("text", ["a\nb", "b\n", "b\0", "\x1b[2J", "a\u2028b", "x" * 1001, "x" * 1_000_000])
def test_texts_of_a_run_are_lines_of_bounded_length(registry: Registry, text: str) -> None:
    """Logs, alerts, environments and names of Spark applications are told them."""
    for asked in ({"batch": text}, {"stream": text}, {"order_by": text}, {"sources": (f"landing/{text}",)}):
        with pytest.raises(InvalidRequestError, match="control characters") as refused:
            _ingest(registry, **{"sources": ("landing",), **asked})
        assert len(str(refused.value)) < 500
    with pytest.raises(InvalidRequestError) as refused:
        registry.find(f"s3://lake/{text}")
    assert len(str(refused.value)) < 500
    assert _ingest(registry, sources=("landing",), batch="x" * 1000).batch
