"""The sidecars of a flushed MemTable: files that let readers find or rule out keys."""

from __future__ import annotations

from collections.abc import Sequence

from memwal_core.errors import UnavailableError
from memwal_core.failpoints import NO_FAILPOINTS, Failpoint, Failpoints
from memwal_core.flushed.write.flush_plan import FlushPlan
from memwal_core.flushed.write.key_index import write_key_index
from memwal_core.format.paths import generation_path
from memwal_core.key_filter import KEY_FILTER_NAME, PYLANCE_FILTER_NAME, KeyFilter, hashes_of, pylance_filter
from memwal_core.storage.protocol import ObjectStore

FLUSH_KEYS = Failpoint("flush.keys")


def write_sidecars(
    store: ObjectStore,
    plan: FlushPlan,
    key_columns: Sequence[str],
    false_positive_rate: float,
    failpoints: Failpoints = NO_FAILPOINTS,
) -> None:
    """Write the key filters and the key index of a flushed MemTable, before it is recorded.

    pylance's readers need the key index (``_pk_index/``) and may use its own filter; ours is sized by the number of
    keys and works for every key type. No reader knows the directory yet, and it is synced as a whole before it is
    recorded, so nothing is synced here.

    Args:
        store: The table's store.
        plan: The flush.
        key_columns: The primary key in key order.
        false_positive_rate: Of our filter.
        failpoints: Hit around the call of Lance.

    Raises:
        UnavailableError: Storage failed. Plan again with a new directory.
    """
    path = generation_path(plan.region_id, plan.directory)
    named = plan.keys.select(list(key_columns))
    hashes = hashes_of(named, key_columns)
    own = KeyFilter.of(named, key_columns, false_positive_rate, hashes)
    store.put(f"{path}/{KEY_FILTER_NAME}", own.to_bytes(path))
    native = pylance_filter(named, key_columns, hashes)
    if native is not None:
        store.put(f"{path}/{PYLANCE_FILTER_NAME}", native)
    try:
        with failpoints.around(FLUSH_KEYS):
            write_key_index(store, path, named, key_columns, plan.key_order)
    except (OSError, RuntimeError, ValueError) as error:
        raise UnavailableError(
            "the key index of a flushed MemTable could not be written",
            remedy="flush again; the rows are safe in the WAL",
            region_id=str(plan.region_id),
            generation=plan.generation,
            path=path,
            cause=str(error),
        ) from error
