"""One number of hours, and what follows from it."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from memwal_core.jobs.gc.policy import check_retention
from memwal_core.settings import CompactSettings, GcSettings, RetentionSettings, Settings, StatusSettings, load_settings

HOUR_S = 3600.0
DAY_S = 24 * HOUR_S


@pytest.mark.parametrize("hours", [1, 24, 100])
def test_every_age_follows_the_hours_of_history(hours):
    settings = Settings(retention=RetentionSettings(hours=hours))

    assert settings.compact.retention_s == hours * HOUR_S
    assert settings.gc.open_writer_s == hours * HOUR_S
    assert settings.gc.manifest_min_age_s == max(hours, 2) * HOUR_S
    assert settings.gc.wal_min_age_s == settings.gc.orphan_age_s == max(hours * HOUR_S, DAY_S)
    assert settings.status.thresholds()["base_versions"] == (2 * hours * HOUR_S, 5 * hours * HOUR_S)
    check_retention(settings.gc)


def test_environment_sets_the_hours(monkeypatch):
    monkeypatch.setenv("MEMWAL_RETENTION__HOURS", "30")

    assert load_settings().compact.retention_s == 30 * HOUR_S


def test_age_that_is_set_by_itself_does_not_follow():
    settings = Settings(
        retention=RetentionSettings(hours=48),
        compact=CompactSettings(retention_s=7200, keep_versions=3),
        gc=GcSettings(wal_min_age_s=9 * DAY_S, grace_s=5),
        status=StatusSettings(base_versions_warn_s=60),
    )

    assert (settings.compact.retention_s, settings.compact.keep_versions) == (7200, 3)
    assert (settings.gc.wal_min_age_s, settings.gc.grace_s) == (9 * DAY_S, 5)
    assert settings.gc.orphan_age_s == 48 * HOUR_S
    assert settings.status.thresholds()["base_versions"] == (60, 5 * 48 * HOUR_S)


def test_defaults_of_a_section_are_those_of_the_default_policy():
    """A section that is made by itself says what one inside of all settings says."""
    settings = Settings()

    assert (settings.gc, settings.compact, settings.status) == (GcSettings(), CompactSettings(), StatusSettings())


def test_threshold_that_was_set_after_one_that_follows_is_refused():
    with pytest.raises(ValidationError, match="base_versions"):
        Settings(retention=RetentionSettings(hours=1), status=StatusSettings(base_versions_warn_s=6 * DAY_S))
