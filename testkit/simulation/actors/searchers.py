"""Actors that search by vector and by words, through indexes that follow the table some turns behind."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from memwal_core.base_table.indexes.inventory import list_indexes
from memwal_core.errors import InvalidRequestError
from memwal_core.reader import Consistency
from memwal_core.reader.merged import MergedReader
from memwal_core.reader.text.search import TextQuery
from memwal_core.reader.vector.search import VectorQuery
from memwal_core.reader.view import TableView
from testkit.simulation.model import TableMoment, WrongRowError
from testkit.simulation.world import OVERWRITTEN, Actor, World
from testkit.tables.people import VECTOR, VECTOR_FIELD
from testkit.tables.readable import as_model

_COLUMNS = ("id", "name")
_ALL = 64
"""More rows than there are keys."""
_COLUMNS_SEARCHED = (VECTOR, "name")
_INDEXED = 0.3
SEARCHED = Consistency.DURABLE
"""What is searched: everything."""


class SearcherActor(Actor):
    """Asks for all rows at once, nearest first or by all the words that there are, and compares them with the model.

    Gives the table a column of vectors, and at some turn indexes.
    """

    def __init__(self, world: World, name: str) -> None:
        """Add the column, before anybody writes."""
        super().__init__(world, name)
        if VECTOR not in world.plain.dataset().schema.names:
            world.plain.dataset().add_columns(VECTOR_FIELD)

    def turn(self) -> str:
        """Search once, or make an index.

        Raises:
            WrongRowError: What was found was possible at no moment of the search.
            InvalidRequestError: The search was refused although nobody has taken its index away.
        """
        world = self._world
        dataset = world.plain.dataset()
        indexes = {index.name for index in list_indexes(dataset)}
        column = world.rng.choice(_COLUMNS_SEARCHED)
        if f"{column}_idx" not in indexes:
            if world.is_interrupting or not dataset.count_rows() or world.rng.random() >= _INDEXED:
                return f"waits for an index of {column}"
            return self._make_index(column)
        began = world.model.moment()
        table = MergedReader(world.table, consistency=SEARCHED)
        try:
            wrong = self._by_vector(table, began) if column == VECTOR else self._by_words(table, began)
        except InvalidRequestError:
            if not world.restored and not world.seen[OVERWRITTEN]:
                raise
            return f"was refused: the index of {column} went with a restore or an overwrite"
        if wrong:
            raise WrongRowError(f"{self.name} by {column}: {wrong}")
        world.seen[f"searched by {column}"] += 1
        return f"searched by {column}"

    def _make_index(self, column: str) -> str:
        dataset = self._world.plain.dataset()
        if column == VECTOR:
            dataset.create_index(VECTOR, "IVF_FLAT", num_partitions=1)
        else:
            dataset.create_scalar_index(column, "INVERTED")
        self._world.seen[f"index of {column}"] += 1
        return f"made an index of {column}"

    def _by_vector(self, table: MergedReader, began: TableMoment) -> object:
        def search(view: TableView) -> pa.Table:
            return view.vector_search(VectorQuery(VECTOR, np.zeros(2, np.float32), _ALL, _COLUMNS))

        return self._world.model.mismatches_since(began, as_model(table.read(search)))

    def _by_words(self, table: MergedReader, began: TableMoment) -> object:
        words = {value for values in began.possible.values() for value in values if value is not None}
        if not words:
            return None

        def search(view: TableView) -> pa.Table:
            return view.full_text_search(TextQuery("name", " ".join(sorted(words)), _ALL, _COLUMNS))

        mismatches = self._world.model.mismatches_since(began, as_model(table.read(search)))
        # Words that were written during the search were not asked for.
        return [each for each in mismatches if each.found is not None or words.issuperset(each.allowed)]
