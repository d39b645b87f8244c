"""What jobs change and other jobs wait for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from airflow.sdk import Asset

REGIONS = Asset(name="memwal_regions", uri="memwal://regions", group="memwal")
"""A batch was written into regions; the event says of which table, which batch, how many rows."""

BASE_TABLE = Asset(name="memwal_base_table", uri="memwal://base-table", group="memwal")
"""Rows were merged; the event says into which table, which version, which generations, how many rows."""

INDEXES = Asset(name="memwal_indexes", uri="memwal://indexes", group="memwal")
"""Indexes were extended over merged rows; the event says of which table and version."""


def triggering_events(assets: Sequence[Asset], context: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return what earlier runs said about the tables that they changed; nothing in a run by hand."""
    triggering = context.get("triggering_asset_events") or {}
    return [event.extra for asset in assets if asset in triggering for event in triggering[asset]]
