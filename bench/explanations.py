"""Why a cost grows faster than what it is about, for the page; each was found by profiling."""

from __future__ import annotations

GROWTH: dict[str, str] = {}
"""Comparison -> explanation, shown if its last step is above linear."""
