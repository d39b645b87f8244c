"""What OpenLineage is told of batches and merges: which datasets they read, and which they wrote."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from airflow.providers.openlineage.extractors import OperatorLineage

    from memwal_core.airflow.tasks.work import WorkItem, WorkResult


class TellsLineage:
    """An operator that tells OpenLineage what its work did, once it has set ``told``."""

    item: Any
    told: WorkResult | None = None

    def get_openlineage_facets_on_complete(self, task_instance: object) -> OperatorLineage | None:  # noqa: ARG002
        """Answer OpenLineage's provider, which asks only where it is installed."""
        return lineage_of(self.item, self.told) if self.told is not None else None


def lineage_of(item: WorkItem, result: WorkResult) -> OperatorLineage | None:
    """Return the datasets of a batch or a merge; None for other work, which moves no rows between datasets.

    What waits for its merge is a dataset of its own, below the table: a batch leads there, and a merge from there into
    the table.
    """
    from airflow.providers.common.compat.openlineage.facet import (
        Dataset,
        OutputDataset,
        OutputStatisticsOutputDatasetFacet,
    )
    from airflow.providers.openlineage.extractors import OperatorLineage

    from memwal_core.airflow.tasks.work import request_of
    from memwal_core.format.paths import MEM_WAL_DIRECTORY
    from memwal_core.jobs.ingest.request import IngestRequest
    from memwal_core.jobs.merge.request import MergeRequest

    request, table = request_of(item), result["uri"]
    regions = f"{table}/{MEM_WAL_DIRECTORY}"
    if request.dry_run:
        return None
    if isinstance(request, IngestRequest):
        read, written, rows = request.sources, regions, result["facts"].get("rows_written")
    elif isinstance(request, MergeRequest):
        read, written, rows = (regions,), table, result["facts"].get("rows")
    else:
        return None
    counted = {"outputStatistics": OutputStatisticsOutputDatasetFacet(rowCount=rows)} if rows is not None else {}
    return OperatorLineage(
        inputs=[Dataset(*dataset_name(each)) for each in read],
        outputs=[OutputDataset(*dataset_name(written), outputFacets=counted)],
    )


def dataset_name(address: str) -> tuple[str, str]:
    """Return namespace and name of what is at an address, as OpenLineage's other integrations call it.

    Tables of catalogs have no address: their namespace is the catalog.
    """
    parts = urlsplit(address)
    if parts.scheme and parts.netloc:
        return f"{parts.scheme}://{parts.netloc}", parts.path.strip("/")
    if parts.path.startswith("/"):
        return "file", parts.path
    catalog, _, name = address.partition(".")
    return catalog, name or address
