"""Unsafe retention is refused by the name of the flag that would allow it."""

from __future__ import annotations

import pytest

from memwal_core.errors import InvalidRequestError
from memwal_core.jobs.gc.policy import check_retention
from memwal_core.settings import GcSettings

UNSAFE = {"orphan_age_s": 86_399, "wal_min_age_s": 86_399, "wal_epoch_checks": 1.9, "manifest_min_age_s": 7199}


@pytest.mark.parametrize("name", UNSAFE)
def test_unsafe_retention_is_refused_with_the_flag_that_allows_it(name):
    with pytest.raises(InvalidRequestError) as raised:
        check_retention(GcSettings(**{name: UNSAFE[name]}))

    assert raised.value.facts["setting"] == f"gc.{name}"
    assert "gc.allow_unsafe_retention" in raised.value.remedy


@pytest.mark.parametrize("name", UNSAFE)
def test_unsafe_retention_is_accepted_with_the_flag(name):
    check_retention(GcSettings(**{name: UNSAFE[name]}, allow_unsafe_retention=True))


def test_defaults_are_safe():
    check_retention(GcSettings())


def test_manifest_versions_outlive_the_grace_period():
    with pytest.raises(InvalidRequestError) as raised:
        check_retention(GcSettings(manifest_min_age_s=7200, grace_s=7201, allow_unsafe_retention=True))

    assert raised.value.facts["grace_s"] == 7201
