"""What one moment of a table consists of, and what is left to copy of it: pure."""

from __future__ import annotations

import base64
import json
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from memwal_core.errors import CorruptionError
from memwal_core.format.document import as_number, as_text, parse_document
from memwal_core.ids import RegionId
from memwal_core.region import RegionManifest
from memwal_core.storage.limits import MAX_OBJECT_BYTES


@dataclass(frozen=True, slots=True)
class CopiedFile:
    """A file that never changes.

    Attributes:
        target: Its path below the copy.
    """

    source: str
    target: str
    size_bytes: int


@dataclass(frozen=True, slots=True)
class CopyMoment:
    """One moment of a table.

    Attributes:
        wal_entries: WAL entries that are not flushed.
        documents: Path below the copy -> content, small.
        manifest: Path and content of the version's manifest, which makes the copy a table and is written last.
    """

    version: int
    rows: int
    regions: int
    generations: int
    wal_entries: int
    files: tuple[CopiedFile, ...]
    documents: Mapping[str, bytes]
    manifest: tuple[str, bytes]

    @property
    def size_bytes(self) -> int:
        """Bytes of all files."""
        return sum(each.size_bytes for each in self.files)

    @property
    def paths(self) -> frozenset[str]:
        """Everything below the copy."""
        return frozenset((*(each.target for each in self.files), *self.documents, self.manifest[0]))


@dataclass(frozen=True, slots=True)
class Journal:
    """What a copy keeps about itself, so that the next run goes on where this one stopped.

    Attributes:
        kind: ``backup`` or ``clone``.
        superseded: Paths of earlier moments that this one does not need.
    """

    source: str
    kind: str
    moment: CopyMoment
    is_complete: bool = False
    superseded: tuple[str, ...] = ()

    def followed_by(self, moment: CopyMoment) -> Journal:
        """Return the journal with another moment."""
        before = {*self.superseded, *self.moment.paths}
        return replace(self, moment=moment, superseded=tuple(sorted(before - moment.paths)))

    def encode(self) -> bytes:
        """Return its bytes."""
        moment = self.moment
        document = {
            "source": self.source,
            "kind": self.kind,
            "is_complete": self.is_complete,
            "superseded": self.superseded,
            "version": moment.version,
            "rows": moment.rows,
            "regions": moment.regions,
            "generations": moment.generations,
            "wal_entries": moment.wal_entries,
            "files": [[each.source, each.target, each.size_bytes] for each in moment.files],
            "documents": {path: _text(data) for path, data in moment.documents.items()},
            "manifest": [moment.manifest[0], _text(moment.manifest[1])],
        }
        return json.dumps(document, separators=(",", ":")).encode()

    @classmethod
    def decode(cls, data: bytes, where: str) -> Journal:
        """Read it; ``where`` is for the error.

        Raises:
            CorruptionError: It cannot be read.
        """
        try:
            found: dict[str, Any] = parse_document(data, MAX_OBJECT_BYTES)
            moment = CopyMoment(
                version=as_number(found["version"]),
                rows=as_number(found["rows"]),
                regions=as_number(found["regions"]),
                generations=as_number(found["generations"]),
                wal_entries=as_number(found["wal_entries"]),
                files=tuple(
                    CopiedFile(as_text(each[0]), as_text(each[1]), as_number(each[2])) for each in found["files"]
                ),
                documents={str(path): base64.b64decode(text) for path, text in found["documents"].items()},
                manifest=(as_text(found["manifest"][0]), base64.b64decode(found["manifest"][1])),
            )
            superseded = tuple(as_text(each) for each in found["superseded"])
            return cls(as_text(found["source"]), as_text(found["kind"]), moment, bool(found["is_complete"]), superseded)
        except (ValueError, KeyError, TypeError, IndexError, AttributeError) as error:
            raise CorruptionError(
                "the journal of a half-done copy cannot be read",
                remedy="empty the target, or name another one",
                path=where,
                problem=str(error),
            ) from error


def files_to_copy(moment: CopyMoment, present: Mapping[str, int]) -> tuple[CopiedFile, ...]:
    """Return the files that the target does not have in full.

    Args:
        moment: What is copied.
        present: Path -> bytes of what the target has.
    """
    return tuple(each for each in moment.files if present.get(each.target) != each.size_bytes)


def out_of_step(manifests: Iterable[RegionManifest], merged: Mapping[RegionId, int]) -> Iterator[str]:
    """Say where a version of the table goes beyond manifests that were read before it.

    A generation that was flushed and merged after its region was read would be in the base table, while the region
    would flush its next rows under the same number, and they would be taken for merged.
    """
    current = {each.region_id: each.current_generation for each in manifests}
    for region_id, generation in merged.items():
        if generation and region_id not in current:
            yield f"region {region_id} is merged and was not listed"
        elif generation and generation >= current[region_id]:
            yield f"region {region_id} has merged generation {generation} since it was read"


def unflushed_entries(replay_after: int, listed: Collection[int]) -> tuple[int, ...] | None:
    """Return the WAL entries that are not flushed, in order; None if one is missing between them.

    A listing may miss an entry that was written while it was made and show the next one.
    """
    wanted = sorted(each for each in listed if each > replay_after)
    if not wanted:
        return tuple(sorted(listed)[-1:])  # The last position stays taken, so that numbers go on.
    return tuple(wanted) if wanted == list(range(replay_after + 1, replay_after + 1 + len(wanted))) else None


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode()
