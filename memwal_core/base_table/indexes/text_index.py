"""What the scores of a full-text index depend on: its tokenizer and the length of its documents."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Final

import lance
import numpy as np
import numpy.typing as npt
from lance.file import LanceFileReader

from memwal_core.base_table.reading.manifest_files import ManifestFiles
from memwal_core.base_table.reading.table_reader import TableReader
from memwal_core.base_table.translate import translated
from memwal_core.errors import InvalidRequestError, ObjectNotFoundError
from memwal_core.format.columns import ROW_ID
from memwal_core.format.index_file import IndexFile
from memwal_core.format.paths import INDEX_DIRECTORY
from memwal_core.storage import ObjectStore

TEXT_KIND: Final = "INVERTED"
"""How Lance is asked for a full-text index."""
TEXT_INDEX = "Inverted"
"""What it calls one that is there."""
_REMOVES_STOP_WORDS = "remove_stop_words"
_CUSTOM_STOP_WORDS = "custom_stop_words"
_TOKENIZER_OPTIONS = (
    "base_tokenizer",
    "language",
    "max_token_length",
    "lower_case",
    "stem",
    _REMOVES_STOP_WORDS,
    _CUSTOM_STOP_WORDS,
    "ascii_folding",
    "min_ngram_length",
    "max_ngram_length",
    "prefix_only",
)
"""Of a text index, under the names that ``lance.tokenize`` takes."""
_CODE = "code"
_CODE_OPTIONS = ("split_identifiers", "split_on_numerics", "preserve_original", "index_operators")
"""Options that Lance takes only with this tokenizer, and only if it is named as the analyzer, too."""
_LENGTH_OPTION = "max_token_length"
_PARAMETERS_FILE = "metadata.lance"
_PARAMETERS = b"params"
_DOCUMENTS_SUFFIX = "_docs.lance"
_TOTAL_TOKENS = b"total_tokens"
_NUM_TOKENS = "_num_tokens"
_DOCUMENTS_AT_ONCE = 65_536

IsLive = Callable[[npt.NDArray[np.uint64]], npt.NDArray[np.bool_]]


@dataclass(frozen=True, slots=True)
class TextIndex:
    """A full-text index of the base table.

    Attributes:
        tokenizer: Options under the names that ``lance.tokenize`` and index creation take.
        documents: Documents indexed, deleted ones included until the index is rebuilt.
    """

    name: str
    tokenizer: Mapping[str, Any]
    documents: int
    tokens: int
    fragments: frozenset[int] = frozenset()
    files: tuple[str, ...] = ()
    storage_options: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}), repr=False, compare=False)

    @property
    def mean_length(self) -> float:
        """Tokens per document; 0 without documents."""
        return self.tokens / self.documents if self.documents else 0.0


@dataclass(frozen=True, slots=True)
class DocumentLengths:
    """Tokens of each document of an index, by ascending row id: 12 bytes per document."""

    ids: npt.NDArray[np.uint64]
    tokens: npt.NDArray[np.uint32]

    def of(self, ids: npt.NDArray[np.uint64]) -> npt.NDArray[np.int64]:
        """Return the tokens of documents; 0 for a row id that the index does not have."""
        if not len(self.ids):
            return np.zeros(len(ids), dtype=np.int64)
        places = np.minimum(np.searchsorted(self.ids, ids), len(self.ids) - 1)
        return np.where(self.ids[places] == ids, self.tokens[places], 0).astype(np.int64)


def read_tokenizer(store: ObjectStore, index: lance.IndexDescription, directory: str) -> dict[str, Any]:
    """Return the tokenizer of a text index, under the names that ``lance.tokenize`` and index creation take.

    ``directory`` has the table's indexes. Lance's description leaves out custom stop words; the index's file has them.
    """
    details = dict(index.details or {})
    for segment in index.segments if details.get(_REMOVES_STOP_WORDS) else ():
        with suppress(ObjectNotFoundError):  # Of a segment without rows, or left behind by a shallow clone.
            file = IndexFile(store, f"{directory}/{segment.uuid}/{_PARAMETERS_FILE}")
            details[_CUSTOM_STOP_WORDS] = json.loads(file.metadata(_PARAMETERS)).get(_CUSTOM_STOP_WORDS)
            break
    return _tokenizer_options(details)


def _tokenizer_options(details: Mapping[str, Any]) -> dict[str, Any]:
    is_code = details.get("base_tokenizer") == _CODE
    names = (*_TOKENIZER_OPTIONS, *(_CODE_OPTIONS if is_code else ()))
    found = {name: details[name] for name in names if name in details}
    # NULL stands for Lance's default, but a length of NULL for no limit.
    options = {name: value for name, value in found.items() if value is not None or name == _LENGTH_OPTION}
    return options | ({"analyzer": _CODE} if is_code else {})


def read_text_index(
    table: TableReader, dataset: lance.LanceDataset, field_id: int, directory: str = ""
) -> TextIndex | None:
    """Return the full-text index of a column that Lance searches, or None if it has none.

    ``dataset`` is a version of the table, or a flushed MemTable whose ``directory`` is relative to the table.
    """
    with translated("read a full-text index", table.uri, version=dataset.version):
        found = [each for each in dataset.describe_indices() if _covers(str(each.index_type), each.fields, field_id)]
        if not found:
            return None
        index = _searched(table, dataset, found, directory)
        prefix = f"{directory}/{INDEX_DIRECTORY}" if directory else INDEX_DIRECTORY
        options = read_tokenizer(table.store, index, prefix)
        documents = tokens = 0
        files = []
        for segment in index.segments:
            listed = list(table.store.list_objects(f"{prefix}/{segment.uuid}/"))
            if segment.fragment_ids and not listed:
                raise InvalidRequestError(
                    "the files of the full-text index are not in this table, as on a shallow clone",
                    remedy="create the index anew on this table, or search its base table with Lance",
                    table=table.uri,
                    index=index.name,
                )
            for info in listed:
                if not info.path.endswith(_DOCUMENTS_SUFFIX):
                    continue
                address = table.store.uri_of(info.path)
                metadata = LanceFileReader(address, storage_options=dict(table.storage_options) or None).metadata()
                files.append(address)
                documents += metadata.num_rows
                tokens += int((metadata.schema.metadata or {}).get(_TOTAL_TOKENS, 0))
        fragments = frozenset(fragment for segment in index.segments for fragment in segment.fragment_ids)
    storage_options = MappingProxyType(dict(table.storage_options))
    return TextIndex(index.name, MappingProxyType(options), documents, tokens, fragments, tuple(files), storage_options)


def _searched(
    table: TableReader, dataset: lance.LanceDataset, found: Sequence[lance.IndexDescription], directory: str
) -> lance.IndexDescription:
    """Return which of the full-text indexes of a column Lance searches: the first that the version lists."""
    if len(found) == 1:
        return found[0]
    manifests = ManifestFiles(table.store, directory) if directory else table.manifests
    listed = manifests.read(dataset.version).indexes
    return min(found, key=lambda each: listed.index(each.name))


def count_documents(index: TextIndex, is_live: IsLive) -> tuple[int, int]:
    """Count the documents of an index that are still rows, and their tokens; ``is_live`` judges row ids."""
    documents = tokens = 0
    for address in index.files:
        with translated("read the documents of a full-text index", address):
            for batch in _documents(index, address).read_all(batch_size=_DOCUMENTS_AT_ONCE).to_batches():
                live = is_live(batch.column(ROW_ID).to_numpy())
                documents += int(live.sum())
                tokens += int(batch.column(_NUM_TOKENS).to_numpy()[live].sum())
    return documents, tokens


def read_document_lengths(index: TextIndex) -> DocumentLengths:
    """Read how many tokens each document of an index has."""
    ids, tokens = [np.empty(0, dtype=np.uint64)], [np.empty(0, dtype=np.uint32)]
    for address in index.files:
        with translated("read the documents of a full-text index", address):
            rows = _documents(index, address).read_all().to_table()
        ids.append(rows.column(ROW_ID).to_numpy())
        tokens.append(rows.column(_NUM_TOKENS).to_numpy())
    every = np.concatenate(ids)
    order = np.argsort(every)
    return DocumentLengths(every[order], np.concatenate(tokens)[order])


def document_lengths(index: TextIndex, ids: npt.NDArray[np.uint64]) -> npt.NDArray[np.int64]:
    """Return the tokens of documents by ascending row id; 0 for an id that the index does not have."""
    lengths = np.zeros(len(ids), dtype=np.int64)
    if not len(ids):
        return lengths
    for address in index.files:
        with translated("read the documents of a full-text index", address):
            for batch in _documents(index, address).read_all(batch_size=_DOCUMENTS_AT_ONCE).to_batches():
                own = batch.column(ROW_ID).to_numpy()
                places = np.minimum(np.searchsorted(ids, own), len(ids) - 1)
                known = ids[places] == own
                lengths[places[known]] = batch.column(_NUM_TOKENS).to_numpy()[known]
    return lengths


def _documents(index: TextIndex, address: str) -> LanceFileReader:
    return LanceFileReader(address, storage_options=dict(index.storage_options) or None)


def _covers(kind: str, fields: list[int], field_id: int) -> bool:
    return kind.upper() == TEXT_KIND and list(fields) == [field_id]
