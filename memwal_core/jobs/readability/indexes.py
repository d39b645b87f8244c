"""Whether indexes of the base table can be read. What Lance decodes of them, a process decodes that may die of it."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass

import lance

from memwal_core.base_table import BaseTable, translated
from memwal_core.base_table.indexes.inventory import is_vector_index
from memwal_core.base_table.indexes.partitions import PartitionSizes
from memwal_core.errors import (
    CorruptionError,
    InternalError,
    InvalidRequestError,
)
from memwal_core.format.memwal_index import is_internal_index
from memwal_core.format.paths import INDEX_DIRECTORY
from memwal_core.jobs.context import Progress
from memwal_core.jobs.readability.files import FileProblem
from memwal_core.native.decoding import decode_file_in_child, load_index_in_child
from memwal_core.storage.protocol import ObjectStore

_LOADED_BYTES = 512 << 20
"""An index of more is not loaded: it may take more memory than the process has, without being forged."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class IndexFiles:
    """The indexes of a version.

    Attributes:
        partitions: Of each vector index that can be read, ordered by name.
        problems: Index -> what is wrong with its files.
    """

    partitions: tuple[PartitionSizes, ...] = ()
    problems: tuple[tuple[str, tuple[FileProblem, ...]], ...] = ()


def examine_indexes(table: BaseTable, version: int, progress: Progress, *, contents: bool) -> IndexFiles:
    """Look for the files of every index of a version, and load vector indexes; with ``contents``, load every index.

    They are loaded as queries and catch-ups do.
    """
    partitions, problems = [], []
    try:
        dataset, indexes = _indexes(table, version)
    except (InvalidRequestError, InternalError) as error:
        _log.info("indexes not read [table=%s]: %s", table.uri, error)
        return IndexFiles()
    for number, index in enumerate(indexes, 1):
        is_vector = is_vector_index(str(index.index_type))
        found = tuple(_incomplete_segments(table.store, index))
        problems += [(index.name, found)] if found else []
        if found or not (contents or is_vector):
            continue
        loads = contents and (index.total_size_bytes or 0) <= _LOADED_BYTES
        try:
            sizes = load_index_in_child(dataset.uri, table.store.storage_options, version, index.name, everything=loads)
            found = () if loads or not contents else tuple(_unreadable_files(table.store, index))
        except CorruptionError as error:
            found = _named(table.store, index, str(error.facts["reason"]))
        else:
            partitions += [PartitionSizes(index.name, sizes)] if is_vector else []
        problems += [(index.name, found)] if found else []
        progress("indexes read", number, len(indexes))
    return IndexFiles(tuple(partitions), tuple(problems))


def incomplete_indexes(table: BaseTable, version: int) -> Iterator[FileProblem]:
    """Yield the directories of indexes of a version that lack files, as listings show them."""
    for index in _indexes(table, version)[1]:
        yield from _incomplete_segments(table.store, index)


def _indexes(table: BaseTable, version: int) -> tuple[lance.LanceDataset, list[lance.IndexDescription]]:
    dataset = table.dataset(version)
    with translated("list indexes", table.uri, version=version):
        found = [index for index in dataset.describe_indices() if not is_internal_index(index.name)]
    return dataset, sorted(found, key=lambda index: index.name)


def _incomplete_segments(store: ObjectStore, index: lance.IndexDescription) -> Iterator[FileProblem]:
    for segment in index.segments:
        if segment.base_id is not None or not segment.size_bytes:
            continue
        directory = f"{INDEX_DIRECTORY}/{segment.uuid}"
        size = sum(file.size_bytes for file in store.list_objects(directory))
        if size < segment.size_bytes:
            written = f"and {segment.size_bytes} were written"
            yield FileProblem(directory, f"its files have {size} bytes, {written}" if size else "it is missing")


def _named(store: ObjectStore, index: lance.IndexDescription, reason: str) -> tuple[FileProblem, ...]:
    """Return which files make an index unreadable; its directories if each file can be decoded by itself."""
    directories = ", ".join(f"{INDEX_DIRECTORY}/{segment.uuid}" for segment in index.segments)
    return tuple(_unreadable_files(store, index)) or (
        FileProblem(directories, f"Lance cannot load the index: {reason}"),
    )


def _unreadable_files(store: ObjectStore, index: lance.IndexDescription) -> Iterator[FileProblem]:
    for segment in index.segments:
        if segment.base_id is not None:
            continue
        for file in store.list_objects(f"{INDEX_DIRECTORY}/{segment.uuid}"):
            try:
                decode_file_in_child(store.uri_of(file.path), store.storage_options)
            except CorruptionError as error:
                yield FileProblem(file.path, f"Lance cannot decode it: {error.facts['reason']}")
