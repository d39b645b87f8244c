"""What is wrong with a WAL entry, judged by its bytes."""

from __future__ import annotations

from memwal_core.errors import CorruptionError, ObjectNotFoundError
from memwal_core.format.footer import FILE_FOOTER_BYTES, read_file_footer
from memwal_core.format.malformed import MalformedError, apparent_damage
from memwal_core.format.paths import LANCE_WAL_SUFFIX, wal_entry_path
from memwal_core.ids import RegionId
from memwal_core.storage.protocol import ObjectStore
from memwal_core.wal.codec import codec_for_suffix
from memwal_core.wal.entry import entry_bytes

_BEGINNING_BYTES = 64


def damage_of_entry(store: ObjectStore, region_id: RegionId, wal_id: int, suffix: str) -> str:
    """Read an entry whole; return what is wrong with it, empty if all of its bytes are as they were written.

    Bytes that only Lance can read are read by another process, which may die of them.
    """
    try:
        data = entry_bytes(store, region_id, wal_id, suffix)
        codec_for_suffix(suffix, {}).decode(store, region_id, wal_id, data, apart=True)
    except CorruptionError as error:
        return str(error.facts.get("cause", error.what))
    return ""


def apparent_damage_of_entry(
    store: ObjectStore, region_id: RegionId, wal_id: int, suffix: str, size_bytes: int | None = None
) -> str:
    """Return what is wrong with an entry as far as its ends tell; empty if nothing.

    Of a Lance file the footer is read, of an Arrow stream whether it holds anything at all. ``size_bytes`` is what was
    written, if that is known.
    """
    path = wal_entry_path(region_id, wal_id, suffix)
    info = store.head(path)
    if info is None:
        return "it is missing"
    if size_bytes is not None and info.size_bytes != size_bytes:
        return f"it has {info.size_bytes} bytes, and {size_bytes} were written"
    try:
        if suffix != LANCE_WAL_SUFFIX:
            return apparent_damage(store.get_range(path, 0, _BEGINNING_BYTES))
        end = store.get_range(path, max(0, info.size_bytes - FILE_FOOTER_BYTES), FILE_FOOTER_BYTES)
        read_file_footer(end, info.size_bytes)
    except ObjectNotFoundError:
        return "it is missing"
    except MalformedError as error:
        return str(error)
    return ""
