"""What jobs change and other jobs wait for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from airflow.sdk import Asset

from memwal_core.jobs.request import BASE_TABLE_ASSET, INDEXES_ASSET, REGIONS_ASSET

REGIONS = Asset(name=REGIONS_ASSET, uri="memwal://regions", group="memwal")
"""A batch was written into regions; the event says of which table, which batch, how many rows."""

BASE_TABLE = Asset(name=BASE_TABLE_ASSET, uri="memwal://base-table", group="memwal")
"""Rows were merged; the event says into which table, which version, which generations, how many rows."""

INDEXES = Asset(name=INDEXES_ASSET, uri="memwal://indexes", group="memwal")
"""Indexes were extended over merged rows; the event says of which table and version."""


ASSETS = {asset.name: asset for asset in (REGIONS, BASE_TABLE, INDEXES)}


def triggering_events(assets: Sequence[Asset], context: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return what earlier runs said about the tables that they changed; nothing in a run by hand."""
    triggering = context.get("triggering_asset_events") or {}
    events = [event.extra for asset in assets if asset in triggering for event in triggering[asset]]
    return [table for event in events for table in event.get("tables", ())]
