"""The settings of the environment: parsed once, and anew when a variable changes."""

from __future__ import annotations

import pytest

from memwal_core.errors import InvalidRequestError
from memwal_core.settings import Settings, default_settings, load_settings

VARIABLE = "MEMWAL_MERGE__MAX_GENERATIONS"


def test_settings_of_the_environment_are_parsed_anew_when_a_variable_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    before = default_settings()
    assert before == Settings()
    assert default_settings() is before

    monkeypatch.setenv(VARIABLE, "7")
    assert default_settings().merge.max_generations == 7
    monkeypatch.setenv(VARIABLE.lower(), "8")
    assert default_settings() == Settings()
    monkeypatch.setenv("OTHER", "9")
    assert default_settings() is default_settings()

    monkeypatch.delenv(VARIABLE)
    monkeypatch.delenv(VARIABLE.lower())
    assert default_settings() == before


def test_value_out_of_bounds_is_refused_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "-1")
    for _ in range(2):
        with pytest.raises(InvalidRequestError, match="cannot be used"):
            load_settings()
