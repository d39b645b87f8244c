"""Which command mends a finding, exactly as it must be typed."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping
from types import MappingProxyType

from memwal_core.observe.findings import Finding

_Command = Callable[[str, Finding], str]


def _repair(uri: str, _finding: Finding) -> str:
    return f"memwal repair {uri}"


def _repair_region(uri: str, finding: Finding) -> str:
    return f"memwal repair {uri} --region {finding.region_id}"


def _repair_duplicates(uri: str, _finding: Finding) -> str:
    return f"memwal repair {uri} --duplicates"


def _relocate(uri: str, _finding: Finding) -> str:
    return f"memwal relocate {uri}"


def _merge(uri: str, _finding: Finding) -> str:
    return f"memwal merge {uri}"


def _thaw(uri: str, _finding: Finding) -> str:
    return f"memwal thaw {uri}"


def _torn(uri: str, finding: Finding) -> str:
    return f"memwal repair {uri}" if finding.evidence.get("torn") else ""


COMMANDS: Mapping[str, _Command] = MappingProxyType(
    {
        "table-unreadable": _torn,
        "generation-hole": _repair_region,
        "generation-missing": _repair_region,
        "generation-damaged": _repair_region,
        "wal-hole": _repair_region,
        "wal-entry-damaged": _repair_region,
        "duplicate-keys": _repair_duplicates,
        "table-moved": _relocate,
        "catchup-ahead": _merge,
        "table-frozen": _thaw,
        "region-frozen": _thaw,
        "index-gone": _thaw,
        "progress-went-back": _thaw,
        "progress-ahead": _thaw,
        "manifest-went-back": _thaw,
    }
)
"""Finding or signal -> the command that mends it, or that shows the choices that a person has."""


def command_for(finding: Finding, uri: str) -> str:
    """Return the command that mends a finding of a table; empty if none does."""
    command = COMMANDS.get(finding.finding_id)
    return "" if command is None else command(shlex.quote(uri), finding)
