"""Playing one history: steps by chance, each followed by a look."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from memwal_core.rng import Rng
from testkit.hands.clients import CLIENTS, KEYS, LANCEDB, Client, Written, group_of
from testkit.hands.damage import DAMAGE_HANDS
from testkit.hands.jobs import JOBS, run_job, thaw
from testkit.hands.model import RegionModel, TableModel
from testkit.hands.place import TablePlace, WrongError, hands_settings
from testkit.hands.table_hands import TABLE_HANDS
from testkit.hands.world import Hand, HandledTables
from testkit.rng import seeded_rng

STEPS = 14
_JOB_WEIGHTS = {"merge": 8, "maintain": 3, "flush": 2, "gc": 3}


class HistoryFailedError(AssertionError):
    """A history in which something was wrong.

    Attributes:
        seed: Plays it again.
        problem: What was wrong.
    """

    def __init__(self, seed: int, problem: str, told: list[str]) -> None:
        """Compose the message: the seed, the problem, the history."""
        self.seed = seed
        self.problem = problem
        lines = "\n".join(f"  {number:2} {line}" for number, line in enumerate(told))
        super().__init__(f"seed {seed} (python -m testkit.hands --seed {seed}): {problem}\n{lines}")


@dataclass(frozen=True)
class Made:
    """How the first table is made.

    Attributes:
        codec: WAL codec of regions of this project's writer.
        packs: Whether its flushes pack small entries.
        has_links: Whether its store has links.
    """

    codec: str
    packs: bool
    has_links: bool


@dataclass
class PlayedHistory:
    """What happened.

    Attributes:
        seed: Plays it again.
        told: One line for each step.
    """

    seed: int
    told: list[str] = field(default_factory=list)


def play(
    seed: int,
    directory: Path,
    *,
    steps: int = STEPS,
    clients: tuple[Client, ...] = CLIENTS,
    hands: Mapping[str, Hand] | None = None,
    made: Made | None = None,
) -> PlayedHistory:
    """Play one history.

    Args:
        seed: Decides everything.
        directory: Empty.
        steps: How many.
        clients: Who may write; one is chosen for the whole history.
        hands: What people may do; everything if None.
        made: How the table is made; by chance if None.

    Raises:
        HistoryFailedError: Something was wrong.
    """
    rng = seeded_rng(seed)
    chosen = {**TABLE_HANDS, **DAMAGE_HANDS} if hands is None else hands
    history = PlayedHistory(seed)
    world = _begin(rng, directory, clients, history, made)
    for _ in range(steps):
        place = rng.choice(world.places)
        name, step = _step(rng, world, place, chosen)
        history.told.append(f"{place.name}: {name}")
        try:
            history.told[-1] += f" -> {step()}"
            seen = [each for each in {id(one): one for one in (place, *world.touched)}.values() if each in world.places]
            world.touched.clear()
            looks = [f"{each.name} {look}" for each in seen if (look := each.look())]
        except WrongError as error:
            raise HistoryFailedError(seed, str(error), history.told) from error
        history.told[-1] += f" | {'; '.join(looks)}" if looks else ""
    return history


def _begin(
    rng: Rng, directory: Path, clients: tuple[Client, ...], history: PlayedHistory, made: Made | None
) -> HandledTables:
    client = rng.choice(clients)
    by_chance = Made(rng.choice(("lance", "arrow")), packs=rng.random() < 0.5, has_links=rng.random() < 0.6)
    made = made or by_chance
    settings = hands_settings(made.codec, packs=made.packs)
    place = TablePlace(str(directory / "a.lance"), TableModel(), settings, made.has_links)
    client.make(place.uri)
    place.model.addresses.add(place.uri)
    world = HandledTables(rng, directory, client, [place])
    place.model.has_version(0, {}, {})
    place.note_version({})
    history.told.append(f"{place.name}: made by {client.name}, {made}")
    run_job(place, "merge")  # So that jobs have seen it.
    return world


def _step(
    rng: Rng, world: HandledTables, place: TablePlace, hands: Mapping[str, Hand]
) -> tuple[str, Callable[[], str]]:
    kind = rng.choices(("write", "job", "hand", "thaw"), (8, 7, 5, 2))[0]
    if kind == "write":
        return "write", lambda: write(world, place)
    if kind == "job":
        name = rng.choices(tuple(JOBS), [_JOB_WEIGHTS.get(each, 1) for each in JOBS])[0]
        return name, lambda: run_job(place, name)
    if kind == "thaw":
        return "thaw", lambda: thaw(place, rng)
    name = rng.choice(tuple(hands))
    return name, lambda: hands[name](world, place)


def write(world: HandledTables, place: TablePlace) -> str:
    """Write to one region, with this history's client.

    Raises:
        WrongError: A write was refused without a reason.
    """
    rng, client, model = world.rng, world.client, place.model
    group = rng.randrange(2)
    keys = rng.sample([key for key in range(KEYS) if group_of(key) == group], 3)
    world.written += 1
    deletes = client is not LANCEDB and rng.random() < 0.4
    writes = {key: f"{key}-{world.written}" for key in keys}
    if not client.is_ours and (model.damaged or not model.is_enabled):
        return f"{client.name} does not write now"
    told: dict[int, str | None] = dict(writes)
    if deletes:
        told[keys[0]] = None
    flush = rng.random() < 0.7

    def acknowledged(written: Written) -> None:
        known = model.regions.get(written.region_id)
        if (known is None or known.is_gone) and written.region_id in (model.now.progress or {}):
            model.must_freeze.add("a region has an older one's progress")
        region = model.regions.setdefault(written.region_id, RegionModel())
        region.is_gone = False
        region.tail.update(written.writes)
        if written.is_flushed:
            region.flushed()

    try:
        client.write(place.table(), told, flush, acknowledged)
    except Exception as error:  # noqa: BLE001 - whatever a write raises is judged
        if not client.is_ours and not model.is_sound:
            return f"{keys} by {client.name}: refused"
        return f"{keys} by {client.name}: " + place.require_excused(error, "write")
    return f"{told} by {client.name}{' and flush' if flush else ''}"
