"""What jobs change and other jobs wait for."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any

from airflow.sdk import Asset

from memwal_core.jobs.catalog import request_type
from memwal_core.jobs.request import BASE_TABLE_ASSET, INDEXES_ASSET, REGIONS_ASSET

REGIONS = Asset(name=REGIONS_ASSET, uri="memwal://regions", group="memwal")
"""A batch was written into regions; the event says of which table, which batch, how many rows."""

BASE_TABLE = Asset(name=BASE_TABLE_ASSET, uri="memwal://base-table", group="memwal")
"""Rows were merged; the event says into which table, which version, which generations, how many rows."""

INDEXES = Asset(name=INDEXES_ASSET, uri="memwal://indexes", group="memwal")
"""Indexes were extended over merged rows; the event says of which table and version."""


ASSETS = {asset.name: asset for asset in (REGIONS, BASE_TABLE, INDEXES)}

_LONGEST_SHOWN = 200

_log = logging.getLogger(__name__)


def assets_of(job: str) -> list[Asset]:
    """Return what a job changes that other jobs wait for."""
    name = request_type(job).info.changes
    return [ASSETS[name]] if name else []


def tell_changes(
    assets: Sequence[Asset], tables: Sequence[Mapping[str, Any]], context: Mapping[str, Any], *, in_cycle: bool = False
) -> None:
    """Say in the events of a task which tables it changed.

    Args:
        assets: Outlets of the task.
        tables: One entry for each.
        context: Of the task.
        in_cycle: Whether the cycle of the tables does by itself what our DAGs would do after it.
    """
    for asset in assets:
        context["outlet_events"][asset].extra = {"tables": [dict(table) for table in tables], "in_cycle": in_cycle}


def triggering_events(assets: Sequence[Asset], context: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return what earlier runs said about the tables that they changed; nothing in a run by hand.

    What a cycle changed is left out: its next steps do what would be done here.
    """
    triggering = context.get("triggering_asset_events")
    if not triggering:  # may be a dictionary, which could not be asked: assets of Airflow 3.1 have no hash
        return []
    events = [event.extra for asset in assets if asset in triggering for event in triggering[asset]]
    return [table for event in events if not event.get("in_cycle") for table in _named(event)]


def _named(event: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the tables that an event names; other DAGs, and people, may have written it."""
    said = event.get("tables")
    tables = said if isinstance(said, list) else [None]
    named = [each for each in tables if isinstance(each, dict) and isinstance(each.get("table"), str) and each["table"]]
    if named != tables:
        _log.warning("an event names no table, or not as our tasks do: %s", str(event)[:_LONGEST_SHOWN])
    return named
