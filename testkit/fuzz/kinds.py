"""Kinds of files: where they are in a table, and how what they say is changed while their form stays readable."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from memwal_core.rng import Rng
from testkit.fuzz.changes.blind import change_bytes
from testkit.fuzz.changes.documents import change_json
from testkit.fuzz.changes.files import (
    change_arrow_stream,
    change_index_details,
    change_inline_snapshot,
    change_lance_file,
    change_table_manifest,
)
from testkit.fuzz.changes.messages import change_message

Change = Callable[[bytes, bytes, Rng], tuple[bytes, str]]
"""From a file, and another of its kind, to changed bytes and what was done."""

_REGION = "_mem_wal/????????-????-????-????-????????????"


@dataclass(frozen=True, slots=True)
class KindOfFile:
    """One kind of file.

    Attributes:
        patterns: Of its files, relative to the table.
        change: Changes what a file says.
        makers: The tables that have such files; all if empty.
        newest_only: Whether only the first file in the order of names counts.
        for_writers: Whether a writer reads it when it claims a region.
        has_pages: Whether Lance decodes its pages in the process that reads rows, and may end that process.
    """

    patterns: tuple[str, ...]
    change: Change
    makers: tuple[str, ...] = ()
    newest_only: bool = False
    for_writers: bool = False
    has_pages: bool = False

    def files(self, table: Path) -> list[Path]:
        """Return its files in a table, ordered by name."""
        found = sorted({path for pattern in self.patterns for path in table.glob(pattern) if path.is_file()})
        return found[:1] if self.newest_only else found


def _message(data: bytes, other: bytes, rng: Rng) -> tuple[bytes, str]:
    del other
    return change_message(data, rng)


def _document(data: bytes, other: bytes, rng: Rng) -> tuple[bytes, str]:
    del other
    return change_json(data, rng)


_OURS = ("lance", "arrow")

KINDS: Mapping[str, KindOfFile] = MappingProxyType(
    {
        "base table manifest": KindOfFile(("_versions/*.manifest",), change_table_manifest),
        "newest base table manifest": KindOfFile(("_versions/*.manifest",), change_table_manifest, newest_only=True),
        "index details": KindOfFile(("_versions/*.manifest",), change_index_details, newest_only=True),
        "inline snapshot": KindOfFile(("_versions/*.manifest",), change_inline_snapshot, ("lance",), newest_only=True),
        "snapshot file": KindOfFile(("_indices/*/index.lance",), change_lance_file, ("arrow",)),
        "region manifest": KindOfFile((f"{_REGION}/manifest/*.binpb",), _message),
        "newest region manifest": KindOfFile((f"{_REGION}/manifest/00*.binpb",), _message, for_writers=True),
        "version hint": KindOfFile(("_mem_wal/**/version_hint.json",), _document),
        "Lance's version hint": KindOfFile(("**/latest_version_hint.json",), _document),
        "WAL entry": KindOfFile(
            (f"{_REGION}/wal/*.lance",), change_lance_file, ("lance",), for_writers=True, has_pages=True
        ),
        "Arrow WAL entry": KindOfFile(
            (f"{_REGION}/wal/*.arrow",), change_arrow_stream, ("arrow", "pylance"), for_writers=True
        ),
        "flushed manifest": KindOfFile((f"{_REGION}/*_gen_*/_versions/*.manifest",), change_table_manifest),
        "flushed data": KindOfFile((f"{_REGION}/*_gen_*/data/*.lance",), change_lance_file, has_pages=True),
        "deletion vector": KindOfFile((f"{_REGION}/*_gen_*/_deletions/*",), change_bytes, ("lance",)),
        "key index": KindOfFile((f"{_REGION}/*_gen_*/_pk_index/*.lance",), change_lance_file, has_pages=True),
        "key filter": KindOfFile((f"{_REGION}/*_gen_*/memwal_key_filter.bin",), change_arrow_stream, _OURS),
        "bloom filter": KindOfFile((f"{_REGION}/*_gen_*/bloom_filter.bin",), _message),
        "transaction": KindOfFile(("_transactions/*.txn", f"{_REGION}/*_gen_*/_transactions/*.txn"), _message),
        "base data": KindOfFile(("data/*.lance",), change_lance_file, has_pages=True),
        "base index": KindOfFile(
            tuple(f"_indices/*/{name}.lance" for name in ("page_*", "bitmap_*", "part_*", "metadata")),
            change_lance_file,
        ),
        "lease": KindOfFile(("_mem_wal/_leases/*/*/[01]*.json",), _document),
        "ledger": KindOfFile(("_mem_wal/_ledger/*/*/[01]*.json",), _document),
        "freeze": KindOfFile(("_mem_wal/_record/[01]*.json",), _document),
        "hold": KindOfFile(
            ("_mem_wal/_quality/quarantined/*/*.json", "_mem_wal/_quality/released/*/*.json"), _document, _OURS
        ),
        "quality document": KindOfFile(("_mem_wal/_quality/newest-*.json",), _document, _OURS),
        "reservation": KindOfFile(("_mem_wal/_regions/*/*.json",), _document, _OURS, for_writers=True),
        "birth mark": KindOfFile(("_mem_wal/_regions/*/*.created",), change_bytes, _OURS, for_writers=True),
        "release": KindOfFile(("_mem_wal/_writers/*.json",), _document, _OURS, for_writers=True),
        "backup journal": KindOfFile(("_mem_wal_copy/[01]*.json",), _document, _OURS),
    }
)
