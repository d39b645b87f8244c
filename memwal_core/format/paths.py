"""The name of every object that the project reads or writes.

All paths are relative to the table's root, with ``/`` between parts. Regions live under
``_mem_wal/``; names there that begin with ``_`` are not regions. A ``parse_...`` function refuses
other names with ``InvalidRequestError``; a caller that lists a directory then leaves the object alone.
"""

from __future__ import annotations

import hashlib
import re
import uuid
from collections.abc import Mapping
from functools import lru_cache

from memwal_core.errors import InvalidRequestError
from memwal_core.ids import RegionId, parse_region_id

MEM_WAL_DIRECTORY = "_mem_wal"
LEASES_DIRECTORY = f"{MEM_WAL_DIRECTORY}/_leases"
LEDGER_DIRECTORY = f"{MEM_WAL_DIRECTORY}/_ledger"
RECORD_DIRECTORY = f"{MEM_WAL_DIRECTORY}/_record"
JOURNAL_DIRECTORY = "_mem_wal_copy"
"""Beside the others, of a copy: a register of what it is a copy of, and how far it got."""
RESERVATIONS_DIRECTORY = f"{MEM_WAL_DIRECTORY}/_regions"
STAGING_DIRECTORY = f"{MEM_WAL_DIRECTORY}/_staging"
MERGE_STAGING_DIRECTORY = f"{STAGING_DIRECTORY}/merge"
ROWS_STAGING_DIRECTORY = f"{STAGING_DIRECTORY}/rows"
QUALITY_DIRECTORY = f"{MEM_WAL_DIRECTORY}/_quality"
WRITERS_DIRECTORY = f"{MEM_WAL_DIRECTORY}/_writers"
QUIET_PATH = f"{MEM_WAL_DIRECTORY}/_quiet/cycle.json"
REMEMBERED_VERSIONS_PATH = f"{MEM_WAL_DIRECTORY}/_quiet/versions.json"
RESERVED_NAMES = frozenset({"_leases", "_ledger", "_record", "_regions", "_staging", "_quality", "_writers", "_quiet"})
"""Directories directly below ``_mem_wal/`` that are not regions."""

BATCHES_DIRECTORY = "_mem_wal_batches"
"""Beside ``_mem_wal/``, which is listed whole: what is kept of named batches is never deleted."""

REPAIR_DIRECTORY = "_mem_wal_repair"
"""Beside ``_mem_wal/``: what repairs set aside. No job reads or deletes it."""

MANIFEST_SUFFIX = ".binpb"
LANCE_WAL_SUFFIX = ".lance"
ARROW_WAL_SUFFIX = ".arrow"
WAL_SUFFIXES = (LANCE_WAL_SUFFIX, ARROW_WAL_SUFFIX)
VERSION_HINT_NAME = "version_hint.json"
BIRTH_SUFFIX = ".created"

DATA_DIRECTORY = "data"
DELETIONS_DIRECTORY = "_deletions"
INDEX_DIRECTORY = "_indices"
TRANSACTIONS_DIRECTORY = "_transactions"
TABLE_VERSIONS_DIRECTORY = "_versions"
BRANCHES_DIRECTORY = "tree"
"""Lance keeps each branch of a table as a table below this directory."""
LANCE_DIRECTORIES = (
    DATA_DIRECTORY,
    DELETIONS_DIRECTORY,
    INDEX_DIRECTORY,
    TRANSACTIONS_DIRECTORY,
    TABLE_VERSIONS_DIRECTORY,
    "_refs",
    BRANCHES_DIRECTORY,
)
"""Where Lance opens files of a table by their names."""
TABLE_MANIFEST_SUFFIX = ".manifest"

MAX_UINT64 = 2**64 - 1
_BITS = 64
_BIT_NAME = re.compile(r"[01]{64}", re.ASCII)
_TABLE_VERSION_DIGITS = 20
_TABLE_VERSION_NAME = re.compile(rf"[0-9]{{{_TABLE_VERSION_DIGITS}}}", re.ASCII)
_STAGED_MANIFEST_NAME = re.compile(
    r"(?P<final>[0-9]{20}\.manifest)-[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.ASCII
)
_STAGED_KEYS_PATH = re.compile(
    rf"{MERGE_STAGING_DIRECTORY}/(?P<attempt>[0-9a-f]{{32}})/[0-9a-f]{{32}}\.arrow", re.ASCII
)
_STAGED_ROWS_PATH = re.compile(
    rf"{ROWS_STAGING_DIRECTORY}/(?P<batch>[0-9a-f]{{64}}/(?:[0-9a-f]{{64}}|0|[1-9][0-9]{{0,19}}))"
    r"/(?:[0-9a-f]{32}\.lance|intent\.json)",
    re.ASCII,
)
_SPEC_ID = re.compile(r"0|[1-9][0-9]{0,9}", re.ASCII)
_PREFIX = re.compile(r"[0-9a-f]{8}", re.ASCII)
_GENERATION_NAME = re.compile(r"(?P<prefix>[0-9A-Za-z]+)_gen_(?P<generation>[1-9][0-9]{0,19})", re.ASCII)
_SAFE_PART = re.compile(r"[0-9A-Za-z][0-9A-Za-z._-]{0,254}", re.ASCII)


def bit_reversed(number: int) -> str:
    """Return the 64 binary digits of a number from 1 to 2^64-1, lowest first.

    Consecutive numbers differ in their first characters, which spreads sequential writes over the key
    space of an object store.
    """
    if not 1 <= number <= MAX_UINT64:
        raise InvalidRequestError(
            "a version or WAL entry is numbered from 1 to 2^64-1", remedy="correct the number", number=number
        )
    return f"{number:0{_BITS}b}"[::-1]


def parse_bit_reversed(name: str) -> int:
    """Return the number behind 64 bit-reversed digits."""
    number = int(name[::-1], 2) if _BIT_NAME.fullmatch(name) else 0
    if number == 0:
        raise InvalidRequestError(
            "this name is not a bit-reversed number", remedy="ignore the object; the format has no such name", name=name
        )
    return number


def numbered_name(number: int, suffix: str) -> str:
    """Return the file name of a numbered object."""
    return bit_reversed(number) + suffix


def parse_numbered_name(name: str, suffix: str) -> int:
    """Return the number of a numbered object from its file name."""
    if not name.endswith(suffix):
        raise InvalidRequestError(
            "this object has another suffix", remedy="ignore the object", name=name, expected=suffix
        )
    return parse_bit_reversed(name.removesuffix(suffix))


def number_of(name: str, suffix: str) -> int | None:
    """Return the number in a file name; None if the name has another form."""
    try:
        return parse_numbered_name(name, suffix)
    except InvalidRequestError:
        return None


def region_directory(region_id: RegionId) -> str:
    """Return the directory of everything that belongs to a region."""
    return f"{MEM_WAL_DIRECTORY}/{region_id}"


def manifest_directory(region_id: RegionId) -> str:
    """Return the directory of a region's manifest versions and their hint."""
    return f"{region_directory(region_id)}/manifest"


def manifest_path(region_id: RegionId, version: int) -> str:
    """Return the path of one manifest version."""
    return f"{manifest_directory(region_id)}/{numbered_name(version, MANIFEST_SUFFIX)}"


def version_hint_path(directory: str) -> str:
    """Return the path of the hint in a directory of numbered versions."""
    return f"{directory}/{VERSION_HINT_NAME}"


@lru_cache(maxsize=1024)
def wal_directory(region_id: RegionId) -> str:
    """Return the directory of a region's WAL entries."""
    return f"{region_directory(region_id)}/wal"


def wal_entry_name(wal_id: int, suffix: str) -> str:
    """Return the file name of a WAL entry."""
    _require_wal_suffix(suffix)
    return numbered_name(wal_id, suffix)


def wal_entry_path(region_id: RegionId, wal_id: int, suffix: str) -> str:
    """Return the path of a WAL entry."""
    return f"{wal_directory(region_id)}/{wal_entry_name(wal_id, suffix)}"


def generation_directory_name(prefix: str, generation: int) -> str:
    """Return the name of a flushed MemTable's directory.

    The 8 hexadecimal digits of the prefix are drawn for each flush (``IdSource.directory_prefix``), so
    that two attempts never share a directory.
    """
    if not _PREFIX.fullmatch(prefix) or not 1 <= generation <= MAX_UINT64:
        raise InvalidRequestError(
            "a flushed MemTable's directory needs 8 hexadecimal digits and a generation from 1",
            remedy="draw the prefix with IdSource.directory_prefix()",
            prefix=prefix,
            generation=generation,
        )
    return f"{prefix}_gen_{generation}"


def parse_generation_directory(name: str) -> int:
    """Return the generation in the name of a flushed MemTable's directory; the prefix may have any length."""
    found = _GENERATION_NAME.fullmatch(name)
    generation = int(found["generation"]) if found else 0
    if not 1 <= generation <= MAX_UINT64:
        raise InvalidRequestError(
            "this is not the directory of a flushed MemTable", remedy="ignore the directory", name=name
        )
    return generation


def require_generation_path(path: str) -> str:
    """Return a recorded path of a flushed MemTable if it names a directory of its region.

    Other programs can write the manifest: a path that reached outside the region directory would make
    readers read, and the garbage collector delete, objects that do not belong to the region.
    """
    if not _SAFE_PART.fullmatch(path) or path in {"wal", "manifest"}:
        raise InvalidRequestError(
            "a flushed MemTable's path must be one plain directory name inside the region",
            remedy="do not use this manifest; find out which program wrote it",
            path=path,
        )
    return path


def generation_path(region_id: RegionId, recorded_path: str) -> str:
    """Return the path of a flushed MemTable from the name recorded in the region manifest."""
    return f"{region_directory(region_id)}/{require_generation_path(recorded_path)}"


def region_reservation_path(region_spec_id: int, region_field_values: Mapping[str, bytes]) -> str:
    """Return the path at which one region id is reserved for a region value.

    ``region_field_values`` maps field id to Arrow scalar bytes; an absent id is NULL. Two values never
    share a name, because the digest covers the lengths of all parts.
    """
    digest = hashlib.sha256()
    for field_id, value in sorted(region_field_values.items()):
        for part in (field_id.encode(), value):
            digest.update(len(part).to_bytes(8, "little"))
            digest.update(part)
    return f"{RESERVATIONS_DIRECTORY}/{region_spec_id}/{digest.hexdigest()}.json"


def parse_reservation_spec(path: str) -> int:
    """Return the region spec of a path that ``region_reservation_path`` made; -1 if it has another form."""
    directory, _, spec = path.rpartition("/")[0].rpartition("/")
    return int(spec) if directory == RESERVATIONS_DIRECTORY and _SPEC_ID.fullmatch(spec) else -1


def region_birth_path(reservation: str, region_id: RegionId) -> str:
    """Return the path of the mark that the region of a reservation was created.

    The name alone says which region has which value, so one listing tells which regions must exist.
    """
    return f"{reservation.removesuffix('.json')}.{region_id}{BIRTH_SUFFIX}"


def parse_region_birth(path: str) -> tuple[RegionId, str]:
    """Return the region and the reservation that a birth mark names.

    Raises:
        InvalidRequestError: It is not the path of a birth mark.
    """
    stem, dot, region = path.removesuffix(BIRTH_SUFFIX).rpartition(".")
    if not path.endswith(BIRTH_SUFFIX) or not dot:
        raise InvalidRequestError("this is not the mark of a region's creation", remedy="report this", path=path)
    return parse_region_id(region), f"{stem}.json"


def writer_release_path(region_id: RegionId) -> str:
    """Return the path at which a region's last writer records that it has released the region."""
    return f"{WRITERS_DIRECTORY}/{region_id}.json"


UNNAMED_STREAM = "spark-write"
"""Stream of Spark's batch writes without a name. They are never repeated, so their records may be deleted."""


def batch_stream_directory(stream: str) -> str:
    """Return the directory of the records of one stream's batches; stream names of any characters are kept apart."""
    return f"{BATCHES_DIRECTORY}/{_digest(stream)}"


def batch_directory(stream: str, batch: str) -> str:
    """Return the directory of the records of one batch."""
    return f"{batch_stream_directory(stream)}/{_digest(batch)}"


def batch_share_path(stream: str, batch: str, region_value: str) -> str:
    """Return the path of the record that the rows of a batch for one region (``region_value`` as text) are written."""
    return f"{batch_directory(stream, batch)}/shares/{_digest(region_value)}.json"


def batch_claim_path(stream: str, region_id: RegionId) -> str:
    """Return the path of the record for which batch a stream last claimed a region."""
    return f"{batch_stream_directory(stream)}/claims/{region_id}.json"


def _digest(name: str) -> str:
    return hashlib.sha256(name.encode()).hexdigest()


def staged_stream_directory(stream: str) -> str:
    """Return where the tasks of one stream's batches leave rows for the process that writes them to regions."""
    return f"{ROWS_STAGING_DIRECTORY}/{_digest(stream)}"


def staged_batch_directory(stream: str, batch: str, number: int | None) -> str:
    """Return where the tasks of one batch leave rows, whatever the attempt; a batch's number names it if it has one."""
    return f"{staged_stream_directory(stream)}/{_digest(batch) if number is None else number}"


def staged_rows_path(directory: str, name: str) -> str:
    """Return the path of rows that one task of a batch leaves; ``name`` has 32 hexadecimal digits."""
    return f"{directory}/{name}.lance"


def staged_intent_path(directory: str) -> str:
    """Return the path of the record that says which staged rows of a batch are to be written."""
    return f"{directory}/intent.json"


def parse_staged_rows_path(path: str) -> str:
    """Return the batch to which staged rows, or a batch's intent record, belong."""
    found = _STAGED_ROWS_PATH.fullmatch(path)
    if found is None:
        raise InvalidRequestError("this is not the path of staged rows", remedy="ignore the object", path=path)
    return found["batch"]


def job_directory(root: str, job: str, scope: str) -> str:
    """Return the directory of a job's documents about one scope, for example ``table`` or a region id."""
    for name in (job, scope):
        if not _SAFE_PART.fullmatch(name):
            raise InvalidRequestError(
                "a job and its scope must be plain names", remedy="use letters, digits, '.', '_' and '-'", name=name
            )
    return f"{root}/{job}/{scope}"


def quarantine_path(region_id: RegionId, generation: int) -> str:
    """Return the path of the record that keeps a flushed MemTable from being merged."""
    return f"{QUALITY_DIRECTORY}/quarantined/{region_id}/{generation}.json"


def released_path(region_id: RegionId, generation: int) -> str:
    """Return the path of the record that an operator let a flushed MemTable pass."""
    return f"{QUALITY_DIRECTORY}/released/{region_id}/{generation}.json"


def audited_path(suites: str) -> str:
    """Return the path of the record of what the last audit by some suites saw; ``suites`` has hexadecimal digits."""
    return f"{QUALITY_DIRECTORY}/audited/{suites}.json"


def quality_result_path(stage: str) -> str:
    """Return the path of the newest report of one stage (``before`` or ``after``) of the quality checks."""
    return f"{QUALITY_DIRECTORY}/newest-{stage}.json"


def merge_staging_directory(attempt: str) -> str:
    """Return where the processes of one merge pass leave files for each other; ``attempt`` has hexadecimal digits."""
    return f"{MERGE_STAGING_DIRECTORY}/{attempt}"


def staged_keys_path(directory: str, name: str) -> str:
    """Return the path of the keys that one process of a merge pass leaves; ``name`` has 32 hexadecimal digits."""
    return f"{directory}/{name}.arrow"


def parse_staged_keys_path(path: str) -> str:
    """Return the merge pass to which staged keys belong."""
    found = _STAGED_KEYS_PATH.fullmatch(path)
    if found is None:
        raise InvalidRequestError("this is not the path of staged keys", remedy="ignore the object", path=path)
    return found["attempt"]


def index_directory(index_uuid: uuid.UUID) -> str:
    """Return the directory of an index of the base table."""
    return f"{INDEX_DIRECTORY}/{index_uuid}"


def region_snapshot_path(index_uuid: uuid.UUID) -> str:
    """Return the path of a region snapshot that is too large for the table manifest."""
    return f"{index_directory(index_uuid)}/index.lance"


def table_manifest_name(version: int) -> str:
    """Return the file name of a table version, from 1; newer versions sort first."""
    if not 1 <= version <= MAX_UINT64:
        raise InvalidRequestError("a table version is numbered from 1 to 2^64-1", remedy="correct it", version=version)
    return f"{MAX_UINT64 - version:020d}{TABLE_MANIFEST_SUFFIX}"


def table_manifest_path(version: int) -> str:
    """Return the path of a table version's manifest."""
    return f"{TABLE_VERSIONS_DIRECTORY}/{table_manifest_name(version)}"


def parse_table_manifest_name(name: str) -> int:
    """Return the version of a table manifest; staged files and Lance's old naming are refused."""
    digits = name.removesuffix(TABLE_MANIFEST_SUFFIX)
    version = MAX_UINT64 - int(digits) if name != digits and _TABLE_VERSION_NAME.fullmatch(digits) else 0
    if version < 1:
        raise InvalidRequestError("this is not the name of a table manifest", remedy="ignore the object", name=name)
    return version


def version_of_manifest(name: str) -> int | None:
    """Return the version of a table manifest of either naming; None for any other file, staged ones included."""
    digits = name.removesuffix(TABLE_MANIFEST_SUFFIX)
    if name == digits or not digits.isascii() or not digits.isdecimal() or len(digits) > _TABLE_VERSION_DIGITS:
        return None
    number = int(digits)
    version = MAX_UINT64 - number if len(digits) == _TABLE_VERSION_DIGITS else number
    return version if 1 <= version <= MAX_UINT64 else None


def parse_staged_manifest_name(name: str) -> int:
    """Return the version that a staged table manifest was meant to become.

    Strict commits, ours and those of version catalogs, stage a manifest under its final name with a
    random UUID behind it.
    """
    found = _STAGED_MANIFEST_NAME.fullmatch(name)
    if found is None:
        raise InvalidRequestError("this is not the name of a staged manifest", remedy="ignore the object", name=name)
    return parse_table_manifest_name(found["final"])


def _require_wal_suffix(suffix: str) -> None:
    if suffix not in WAL_SUFFIXES:
        raise InvalidRequestError(
            "no WAL codec has this suffix", remedy="use the region's codec", suffix=suffix, expected=WAL_SUFFIXES
        )
