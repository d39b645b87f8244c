"""Programs that know nothing of MemWAL and write the base table with Lance alone."""

from __future__ import annotations

from collections.abc import Sequence

import lance
import pyarrow as pa

from memwal_core.errors import CommitUnknownError
from memwal_core.format.paths import TABLE_VERSIONS_DIRECTORY
from testkit.simulation.actors.writers import completed
from testkit.simulation.model import Value
from testkit.simulation.world import Actor, World
from testkit.tables.people import people


class BaseWriterActor(Actor):
    """Appends, updates and deletes rows of its own keys, which no region has, by plain commits of Lance.

    Nothing interrupts its turn, because Lance's requests pass no store of ours; it is there to interrupt others.

    Args:
        world: Where it lives.
        name: Its name.
        keys: Those that it writes, out of ``BASE_KEYS``.
    """

    def __init__(self, world: World, name: str, keys: Sequence[int]) -> None:
        """Begin with no rows."""
        super().__init__(world, name)
        self._keys = keys

    def turn(self) -> str:
        """Append a row, or update or delete one that was appended.

        Raises:
            CommitUnknownError: Lance did not commit, or did not say so.
        """
        world = self._world
        key = world.rng.choice(self._keys)
        exists = world.plain.dataset().count_rows(f"id = {key}") > 0
        action = world.rng.choice(("update", "delete")) if exists else "append"
        value: Value = None if action == "delete" else f"v{world.ids.directory_prefix()}"
        since = world.model.begin({key: value})
        try:
            self._commit(key, value, action)
        except (OSError, RuntimeError, ValueError) as error:
            world.model.in_doubt({key: value}, self)
            world.model.settled(self)
            raise CommitUnknownError("Lance did not commit", remedy="look again", error=str(error)) from error
        world.contests.joins(TABLE_VERSIONS_DIRECTORY)
        world.model.acknowledged(since, {key: value}, self)
        world.seen[f"base table: {action}"] += 1
        return f"{action} {key} -> {value} in the base table"

    def _commit(self, key: int, value: Value, action: str) -> None:
        dataset = self._world.plain.dataset()
        if value is None:
            dataset.delete(f"id = {key}")
            return
        rows: pa.Table = completed(people(key, name=value), dataset.schema)
        if action == "append":
            lance.write_dataset(rows, dataset.uri, mode="append")
        else:
            dataset.merge_insert("id").when_matched_update_all().execute(rows)
