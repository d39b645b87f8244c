"""What the scores of a full-text index depend on: its tokenizer and the length of its documents."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import lance
from lance.file import LanceFileReader

from memwal_core.base_table.reading import TableReader
from memwal_core.base_table.translate import translated
from memwal_core.storage.layout import INDEX_DIRECTORY

_KIND = "INVERTED"
_TOKENIZER_OPTIONS = (
    "base_tokenizer",
    "language",
    "max_token_length",
    "lower_case",
    "stem",
    "remove_stop_words",
    "custom_stop_words",
    "ascii_folding",
    "min_ngram_length",
    "max_ngram_length",
    "prefix_only",
)
_LENGTH_OPTION = "max_token_length"
_DOCUMENTS_SUFFIX = "_docs.lance"
_TOTAL_TOKENS = b"total_tokens"


@dataclass(frozen=True, slots=True)
class TextIndex:
    """A full-text index of the base table.

    Attributes:
        name: Its name.
        tokenizer: Options under the names that ``lance.tokenize`` and index creation take.
        documents: Documents indexed, deleted ones included until the index is built anew.
        tokens: Tokens of all of them.
    """

    name: str
    tokenizer: Mapping[str, Any]
    documents: int
    tokens: int

    @property
    def mean_length(self) -> float:
        """Tokens per document; 0 without documents."""
        return self.tokens / self.documents if self.documents else 0.0


def read_text_index(table: TableReader, dataset: lance.LanceDataset, field_id: int) -> TextIndex | None:
    """Return the full-text index of a column, or None if it has none.

    Args:
        table: The table.
        dataset: The version of it.
        field_id: The column.

    Raises:
        ObjectNotFoundError: The version or a file of the index is gone.
        UnavailableError: Storage failed.
    """
    with translated("read a full-text index", table.uri, version=dataset.version):
        found = [each for each in dataset.describe_indices() if _covers(str(each.index_type), each.fields, field_id)]
        if not found:
            return None
        index = found[0]
        details = {name: index.details.get(name) for name in _TOKENIZER_OPTIONS}
        # NULL stands for Lance's default, but a length of NULL for no limit.
        options = {name: value for name, value in details.items() if value is not None or name == _LENGTH_OPTION}
        documents = tokens = 0
        for segment in index.segments:
            for info in table.store.list_objects(f"{INDEX_DIRECTORY}/{segment.uuid}/"):
                if not info.path.endswith(_DOCUMENTS_SUFFIX):
                    continue
                address = table.store.uri_of(info.path)
                metadata = LanceFileReader(address, storage_options=dict(table.storage_options) or None).metadata()
                documents += metadata.num_rows
                tokens += int((metadata.schema.metadata or {}).get(_TOTAL_TOKENS, 0))
    return TextIndex(index.name, MappingProxyType(options), documents, tokens)


def _covers(kind: str, fields: list[int], field_id: int) -> bool:
    return kind.upper() == _KIND and list(fields) == [field_id]
