"""The settings of the environment: parsed once, and anew when a variable changes."""

from __future__ import annotations

from pathlib import Path

import pytest

import memwal_core
from memwal_core.errors import InvalidRequestError
from memwal_core.settings import Settings, load_settings

VARIABLE = "MEMWAL_MERGE__MAX_GENERATIONS"


def test_settings_of_the_environment_are_parsed_anew_when_a_variable_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    before = load_settings()
    assert before == Settings()
    assert load_settings() is before

    monkeypatch.setenv(VARIABLE, "7")
    assert load_settings().merge.max_generations == 7
    monkeypatch.setenv(VARIABLE.lower(), "8")
    assert load_settings() == Settings()
    monkeypatch.setenv("OTHER", "9")
    assert load_settings() is load_settings()

    monkeypatch.delenv(VARIABLE)
    monkeypatch.delenv(VARIABLE.lower())
    assert load_settings() == before


@pytest.mark.parametrize("name", ["foreign_quiet_s", "max_wait_s"])
def test_null_switches_off_what_may_be_null(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """No variable could say what the page promises: never take writers of others for dead."""
    described = type(Settings().flush).model_fields[name].description
    monkeypatch.setenv(f"MEMWAL_FLUSH__{name}".upper(), "null")

    assert getattr(load_settings().flush, name) is None
    assert described is not None
    assert "`null`: never" in described


def test_null_is_no_value_of_a_setting_that_needs_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "null")

    with pytest.raises(InvalidRequestError, match="cannot be used"):
        load_settings()


def test_value_out_of_bounds_is_refused_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "-1")
    for _ in range(2):
        with pytest.raises(InvalidRequestError, match="cannot be used"):
            load_settings()


@pytest.mark.parametrize("service", ["MEMWAL", "MEMWAL_MAINTAIN"])
def test_a_service_of_kubernetes_may_have_any_name(monkeypatch: pytest.MonkeyPatch, service: str) -> None:
    """Each pod beside a Service named ``memwal-maintain`` refused to begin."""
    port = f"{service}_PORT_9464_TCP"
    for name, value in {
        f"{service}_SERVICE_HOST": "10.0.0.11",
        f"{service}_SERVICE_PORT": "9464",
        f"{service}_SERVICE_PORT_METRICS": "9464",
        f"{service}_PORT": "tcp://10.0.0.11:9464",
        port: "tcp://10.0.0.11:9464",
        f"{port}_PROTO": "tcp",
        f"{port}_PORT": "9464",
        f"{port}_ADDR": "10.0.0.11",
    }.items():
        monkeypatch.setenv(name, value)

    assert load_settings() == Settings()


@pytest.mark.parametrize("variable", ["MEMWAL_PORTS", "MEMWAL_MERGE_MAX_BYTES", "MEMWAL_PAGES__PORT"])
def test_other_names_are_still_refused(monkeypatch: pytest.MonkeyPatch, variable: str) -> None:
    monkeypatch.setenv(variable, "1")

    with pytest.raises(InvalidRequestError, match="is not a setting"):
        load_settings()


@pytest.mark.parametrize(
    ("variable", "named"),
    [
        ("MEMWAL_MERGE_MAX_BYTES", "MEMWAL_MERGE__MAX_BYTES"),
        ("MEMWAL_PAGES__DEADLINE_S", "MEMWAL_PAGE__DEADLINE_S"),
        ("MEMWAL_MERGE__MAX_BITES", "MEMWAL_MERGE__MAX_BYTES"),
        ("MEMWAL_XQ", None),
    ],
)
def test_misspelt_name_leads_to_the_setting_that_is_meant(
    monkeypatch: pytest.MonkeyPatch, variable: str, named: str | None
) -> None:
    monkeypatch.setenv(variable, "1")

    with pytest.raises(InvalidRequestError, match="is not a setting") as caught:
        load_settings()

    assert ("perhaps to" in caught.value.remedy) == (named is not None)
    assert (named or "correct the name; docs") in caught.value.remedy


SECONDS = [
    f"MEMWAL_{section}__{name}".upper()
    for section, info in Settings.model_fields.items()
    for name in getattr(info.annotation, "model_fields", ())
    if name.endswith("_s")
]


@pytest.mark.parametrize("value", ["inf", "1e300", "1e10"])
@pytest.mark.parametrize("variable", [*SECONDS, "MEMWAL_GC__WAL_EPOCH_CHECKS"])
def test_times_that_no_clock_counts_are_refused(monkeypatch: pytest.MonkeyPatch, variable: str, value: str) -> None:
    """Before, a writer that was told never to flush by age flushed nothing, and collections failed at a date."""
    monkeypatch.setenv(variable, value)

    with pytest.raises(InvalidRequestError, match="cannot be used"):
        load_settings()


COUNTS = [
    f"MEMWAL_{section}__{name}".upper()
    for section, info in Settings.model_fields.items()
    for name, field in getattr(info.annotation, "model_fields", {}).items()
    if field.annotation is int
]


@pytest.mark.parametrize("variable", COUNTS)
@pytest.mark.parametrize("value", [str(2**63), "9" * 30])
def test_counts_beyond_64_bits_are_refused(monkeypatch: pytest.MonkeyPatch, variable: str, value: str) -> None:
    monkeypatch.setenv(variable, value)
    with pytest.raises(InvalidRequestError) as refused:
        load_settings()
    assert refused.value.facts["value"] == value


@pytest.mark.parametrize(
    ("variable", "value", "facts"),
    [
        (VARIABLE, "many", {"setting": "merge.max_generations", "value": "many"}),
        (
            "MEMWAL_STATUS__PENDING_GENERATIONS_WARN",
            "50",
            {"setting": "status", "problem": "pending_generations would warn at 50, after it pages at 20"},
        ),
        (
            "MEMWAL_LEASE__TTL_S",
            "60",
            {"setting": "lease", "problem": "renew_after_s is 100, not below ttl_s, which is 60"},
        ),
        ("MEMWAL_MERG__MAX_GENERATIONS", "7", {"variable": "MEMWAL_MERG__MAX_GENERATIONS"}),
        ("MEMWAL_MERGE__MAX_GENERATION", "7", {"variable": "MEMWAL_MERGE__MAX_GENERATION"}),
        ("MEMWAL_MERGE", "7,8", {"problem": 'error parsing value for field "merge" from source "EnvSettingsSource"'}),
    ],
)
def test_wrong_variable_is_refused_in_our_words_by_commands_and_by_the_library(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variable: str, value: str, facts: dict[str, object]
) -> None:
    """The library raised an error of pydantic, and ignored a misspelt section."""
    monkeypatch.setenv(variable, value)
    for use in (load_settings, lambda: memwal_core.open(str(tmp_path))):
        with pytest.raises(InvalidRequestError) as refused:
            use()
        assert facts.items() <= refused.value.facts.items()
