"""What a verification reads. Pure."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from memwal_core.base_table import TableState
from memwal_core.jobs.sharing.place import Work
from memwal_core.jobs.verify.facts import digest_of_progress
from memwal_core.jobs.verify.keys import nullable_key_schema, work_of_keys


@dataclass(frozen=True, slots=True)
class VerifyPlan:
    """The keys of one version.

    Attributes:
        rows: Its live rows.
        schema: The key columns; none if the table has no key.
        merged: What tells how far each region is merged from any other state.
        undue: Why they are not counted; empty if they are.
    """

    table_uri: str
    version: int
    rows: int
    schema: pa.Schema
    merged: str = ""
    undue: str = ""

    @property
    def is_due(self) -> bool:
        """Whether there is anything to count."""
        return not self.undue

    @property
    def work(self) -> Work:
        """How much there is to read, as far as metadata tells."""
        return work_of_keys(self.rows, self.schema)

    def to_dict(self) -> dict[str, object]:
        """Return JSON-able values."""
        return {
            "version": self.version,
            "rows": self.rows,
            "key": self.schema.names,
            "key_bytes_about": self.work.size_bytes,
        }


def plan_verification(table_uri: str, state: TableState) -> VerifyPlan:
    """Return what is to be read of a version.

    Raises:
        InvalidRequestError: There is a key, but MemWAL cannot use it.
    """
    schema = nullable_key_schema(state.schema, state.merge_key())
    progress = state.details.merged_generations if state.details is not None else {}
    undue = "" if schema.names else "the table has no primary key"
    return VerifyPlan(table_uri, state.version, state.num_rows, schema, digest_of_progress(progress), undue)
