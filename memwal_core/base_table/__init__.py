"""The base table: versions, merge progress, strict commits.

Owns nothing in memory: the state is the Lance table, which this package alone commits to. It alone
calls pylance's commit functions, knows the bytes of table manifests, and turns pylance's errors
into those of this package. May import the index, region specs, storage and what lies below.
"""

from memwal_core.base_table.coverage import IndexCoverage, TableCoverage, extend_index, read_coverage, record_catchup
from memwal_core.base_table.foreign_files import files_of_other_bases
from memwal_core.base_table.fragments import (
    CompactionOptions,
    CompactionResult,
    FragmentFacts,
    compact_fragments,
    list_fragments,
)
from memwal_core.base_table.inventory import IndexFacts, list_indexes
from memwal_core.base_table.keys import PrimaryKey
from memwal_core.base_table.native_merge import CommitResult, Retries
from memwal_core.base_table.reading import Sources, TableReader
from memwal_core.base_table.retained import RetainedVersion, retained_versions
from memwal_core.base_table.snapshots import SnapshotOvertakenError, publish_snapshot, read_snapshot
from memwal_core.base_table.state import TableState
from memwal_core.base_table.table import BaseTable
from memwal_core.base_table.table_manifest import MemWalEntry
from memwal_core.base_table.text_index import (
    DocumentLengths,
    IsLive,
    TextIndex,
    count_documents,
    document_lengths,
    read_document_lengths,
    read_text_index,
)
from memwal_core.base_table.translate import StaleMergeError, translated
from memwal_core.base_table.vector_model import vector_model_digest
from memwal_core.base_table.versions import (
    CleanupResult,
    TableVersion,
    explain_cleanup,
    list_versions,
    remove_versions,
)

__all__ = [
    "BaseTable",
    "CleanupResult",
    "CommitResult",
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
    "Retries",
    "SnapshotOvertakenError",
    "Sources",
    "StaleMergeError",
    "TableCoverage",
    "TableReader",
    "TableState",
    "TableVersion",
    "TextIndex",
    "compact_fragments",
    "count_documents",
    "document_lengths",
    "explain_cleanup",
    "extend_index",
    "files_of_other_bases",
    "list_fragments",
    "list_indexes",
    "list_versions",
    "publish_snapshot",
    "read_coverage",
    "read_document_lengths",
    "read_snapshot",
    "read_text_index",
    "record_catchup",
    "remove_versions",
    "retained_versions",
    "translated",
    "vector_model_digest",
]
