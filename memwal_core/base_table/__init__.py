"""The base table: versions, merge progress, strict commits.

Keeps nothing in memory: the state is the Lance table, which only this package commits to. It alone
calls pylance's commit functions, knows the bytes of table manifests, and turns pylance's errors
into those of this package. May import the index, region specs, storage and the layers below.
"""

from memwal_core.base_table.commit.compaction import (
    CompactionOptions,
    CompactionResult,
    FragmentFacts,
    compact_fragments,
    list_fragments,
    rewrite_fragments,
)
from memwal_core.base_table.commit.snapshots import (
    SnapshotOvertakenError,
    named_regions,
    publish_snapshot,
    read_snapshot,
    regions_at_rest,
    unchanged_regions,
)
from memwal_core.base_table.history.remembered import recall_versions, remember_versions
from memwal_core.base_table.history.retained import RetainedVersion, inherited_progress, retained_versions
from memwal_core.base_table.history.versions import (
    CleanupResult,
    TableVersion,
    explain_cleanup,
    list_versions,
    remove_versions,
)
from memwal_core.base_table.indexes.coverage import (
    IndexCoverage,
    TableCoverage,
    extend_index,
    read_coverage,
    record_catchup,
)
from memwal_core.base_table.indexes.inventory import IndexFacts, list_indexes
from memwal_core.base_table.indexes.text_index import (
    DocumentLengths,
    IsLive,
    TextIndex,
    count_documents,
    document_lengths,
    read_document_lengths,
    read_text_index,
)
from memwal_core.base_table.indexes.vector_model import vector_model_digest
from memwal_core.base_table.keys.primary_key import PrimaryKey
from memwal_core.base_table.reading.checked_opening import open_file, require_sound
from memwal_core.base_table.reading.foreign_files import files_of_other_bases
from memwal_core.base_table.reading.table_reader import Sources, TableReader
from memwal_core.base_table.state import TableState
from memwal_core.base_table.table import BaseTable
from memwal_core.base_table.translate import decoding, translated
from memwal_core.format.table_manifest import MemWalEntry

__all__ = [
    "BaseTable",
    "CleanupResult",
    "CompactionOptions",
    "CompactionResult",
    "DocumentLengths",
    "FragmentFacts",
    "IndexCoverage",
    "IndexFacts",
    "IsLive",
    "MemWalEntry",
    "PrimaryKey",
    "RetainedVersion",
    "SnapshotOvertakenError",
    "Sources",
    "TableCoverage",
    "TableReader",
    "TableState",
    "TableVersion",
    "TextIndex",
    "compact_fragments",
    "count_documents",
    "decoding",
    "document_lengths",
    "explain_cleanup",
    "extend_index",
    "files_of_other_bases",
    "inherited_progress",
    "list_fragments",
    "list_indexes",
    "list_versions",
    "named_regions",
    "open_file",
    "publish_snapshot",
    "read_coverage",
    "read_document_lengths",
    "read_snapshot",
    "read_text_index",
    "recall_versions",
    "record_catchup",
    "regions_at_rest",
    "remember_versions",
    "remove_versions",
    "require_sound",
    "retained_versions",
    "rewrite_fragments",
    "translated",
    "unchanged_regions",
    "vector_model_digest",
]
