"""What people and disks do to single files: deleted, emptied, cut, zeroed, and put back."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path

from memwal_core.coordination.freeze import FreezeCause
from memwal_core.format.paths import manifest_directory, region_directory
from testkit.faults.file_damage import damage_file
from testkit.hands.model import REGION_CAUSES, VANISHED
from testkit.hands.place import TablePlace
from testkit.hands.world import Hand, HandledTables

_KINDS = ("deleted", "empty", "truncated", "zeroed")


def damage(world: HandledTables, place: TablePlace) -> str:
    """Damage one file of a region, or of the base table."""
    model, root = place.model, Path(place.uri)
    if not model.is_sound or not model.regions:
        return "not now"
    region_id = world.rng.choice(sorted(model.regions))
    region = root / region_directory(region_id)
    files = [each for each in sorted(region.rglob("*")) if each.is_file()]
    newest = max(files, key=_wal_id, default=None)
    files += sorted((root / "data").glob("*.lance"))
    if not files:
        return "nothing there"
    chosen = world.rng.choice(files)
    kind = world.rng.choice(_KINDS)
    if kind == "deleted" and chosen == newest and _wal_id(chosen):
        return "not the newest WAL entry, which nothing else names"
    model.damaged[str(chosen.relative_to(root))] = chosen.read_bytes()
    damage_file(chosen, kind)
    model.excuses |= {FreezeCause.REGION_WENT_BACK, *REGION_CAUSES}
    return f"{kind} {chosen.relative_to(root)}"


def remove_region(world: HandledTables, place: TablePlace) -> str:
    """Remove the directory of a region."""
    model = place.model
    named = [each for each in model.regions if world.client.is_ours or model.merged(each)]
    if not model.is_sound or not named:
        return "not now"
    region_id = world.rng.choice(sorted(named))
    shutil.rmtree(Path(place.uri) / region_directory(region_id))
    if model.merged(region_id):
        model.must_freeze.add(VANISHED)
    model.regions[region_id].removed(model.merged(region_id))
    model.partial.add(str(region_id))
    model.excuses |= REGION_CAUSES
    return str(region_id)


def remove_newest_manifest(world: HandledTables, place: TablePlace) -> str:
    """Remove the newest manifest of a region; its hint stays."""
    model = place.model
    if not model.is_sound or not model.regions:
        return "not now"
    root = Path(place.uri)
    directory = root / manifest_directory(world.rng.choice(sorted(model.regions)))
    chosen = max(directory.glob("*.binpb"), key=lambda each: int(each.stem[::-1], 2))
    model.damaged[str(chosen.relative_to(root))] = chosen.read_bytes()
    chosen.unlink()
    model.excuses |= {FreezeCause.REGION_WENT_BACK, *REGION_CAUSES}
    return str(chosen.relative_to(root))


def _wal_id(path: Path) -> int:
    return int(path.stem[::-1], 2) if path.parent.name == "wal" and set(path.stem) <= {"0", "1"} else 0


def undo_damage(world: HandledTables, place: TablePlace) -> str:
    """Put damaged files back from a copy."""
    del world
    model = place.model
    for path, data in model.damaged.items():
        target = Path(place.uri) / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.unlink(missing_ok=True)
        target.write_bytes(data)
    count = len(model.damaged)
    model.damaged.clear()
    return f"{count} files put back"


DAMAGE_HANDS: Mapping[str, Hand] = {
    "damage": damage,
    "put files back": undo_damage,
    "remove region": remove_region,
    "remove newest manifest": remove_newest_manifest,
}
