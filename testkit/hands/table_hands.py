"""What people do to whole tables: copy, move, swap, restore, overwrite, enable again, clone, branch, tag, clean up."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path

import lance

from memwal_core.coordination.freeze import FreezeCause
from testkit.hands.clients import LANCEDB, lancedb_table
from testkit.hands.model import REGION_CAUSES, Branch, TableModel, Version
from testkit.hands.place import TablePlace
from testkit.hands.world import CopyAside, Hand, HandledTables
from testkit.tables.people import people

_MOST_PLACES = 3


def copy(world: HandledTables, place: TablePlace) -> str:
    """Copy the table to another address, where it goes its own way."""
    if len(world.places) == _MOST_PLACES:
        return "there are enough"
    other = TablePlace(
        str(world.directory / f"{world.new_name()}.lance"), place.model.copied(), place.settings, place.has_links
    )
    shutil.copytree(place.uri, other.uri)
    world.places.append(other)
    world.touched.append(other)
    return f"to {other.name}"


def move(world: HandledTables, place: TablePlace) -> str:
    """Move the table to another address."""
    uri = str(world.directory / f"{world.new_name()}.lance")
    Path(place.uri).rename(uri)
    place.uri = uri
    return f"to {place.name}"


def swap(world: HandledTables, place: TablePlace) -> str:
    """Give two tables each other's address."""
    others = [each for each in world.places if each is not place]
    if not others:
        return "there is only one"
    other = world.rng.choice(others)
    aside = world.directory / "aside"
    Path(place.uri).rename(aside)
    Path(other.uri).rename(place.uri)
    aside.rename(other.uri)
    place.uri, other.uri = other.uri, place.uri
    world.touched.append(other)
    return f"with {place.name}"


def back_up(world: HandledTables, place: TablePlace) -> str:
    """Put a copy aside."""
    path = world.directory / f"backup-{world.new_name()}"
    shutil.copytree(place.uri, path)
    world.backups.append(CopyAside(path, place.uri, place.model.copied()))
    return path.name


def put_back(world: HandledTables, place: TablePlace) -> str:
    """Put an older copy in the place of the table."""
    if not world.backups:
        return "there is no copy"
    backup = world.rng.choice(world.backups)
    shutil.rmtree(place.uri)
    shutil.copytree(backup.path, place.uri)
    place.model = backup.model.copied()
    return backup.path.name


def restore(world: HandledTables, place: TablePlace) -> str:
    """Make an older version the newest."""
    model = place.model
    if not model.is_sound:
        return "not now"
    there = {each["version"] for each in lance.dataset(place.uri).versions()} & model.versions.keys() - {0}
    number = world.rng.choice(sorted(there))
    version = model.versions[number]
    lance.dataset(place.uri, version=number).restore()  # type: ignore[no-untyped-call]
    model.turned_back(f"restored to {number}", to=version)
    _has_content_of(place, version)
    return f"version {number}"


def overwrite(world: HandledTables, place: TablePlace) -> str:
    """Replace the whole content, as a pipeline does that knows nothing of MemWAL."""
    if not place.model.is_sound:
        return "not now"
    rows = people(*world.rng.sample(range(16), 2), name="overwritten")
    lance.write_dataset(rows, place.uri, mode="overwrite")
    place.model.turned_back("overwritten", to=None)
    content = dict(zip(rows["id"].to_pylist(), rows["name"].to_pylist(), strict=True))
    _has_content_of(place, Version(content, None))
    return f"with {content}"


def enable(world: HandledTables, place: TablePlace) -> str:
    """Enable MemWAL again on a table that has lost its index."""
    model = place.model
    if model.is_enabled or not model.is_sound:
        return "is enabled"
    world.client.enable(place.uri)
    _has_content_of(place, Version(model.now.rows, {}))
    return f"by {world.client.name}"


def unset(world: HandledTables, place: TablePlace) -> str:
    """Remove LanceDB's write spec and change rows."""
    model = place.model
    if world.client is not LANCEDB or not model.is_enabled or not model.is_sound:
        return "not this table"
    table = lancedb_table(place.uri)
    table.unset_lsm_write_spec()  # type: ignore[attr-defined]
    rows = dict(model.now.rows)
    if rows:
        key = world.rng.choice(sorted(rows))
        table.delete(f"id = {key}")
        del rows[key]
    model.turned_back("write spec removed", to=None)
    _has_content_of(place, Version(rows, None))
    return "write spec removed, and a row"


def clone(world: HandledTables, place: TablePlace) -> str:
    """Clone the newest version; its files stay where they are."""
    if len(world.places) == _MOST_PLACES or not place.model.is_sound or not place.model.is_enabled:
        return "not now"
    uri = str(world.directory / f"{world.new_name()}.lance")
    lance.dataset(place.uri).shallow_clone(uri, lance.dataset(place.uri).version)
    model = TableModel(partial={"clone"}, excuses=set(REGION_CAUSES))
    cloned = TablePlace(uri, model, place.settings, place.has_links)
    progress = dict(place.model.now.progress or {})
    model.newest = lance.dataset(uri).version
    # The regions stayed behind: whatever the clone has under their ids began again.
    model.versions[model.newest] = Version(
        place.model.now.rows,
        {each: type(merged)(merged.incarnation - 1, merged.generation) for each, merged in progress.items()},
    )
    world.places.append(cloned)
    world.touched.append(cloned)
    return f"to {cloned.name}"


def branch(world: HandledTables, place: TablePlace) -> str:
    """Make a branch of the newest version, and write to it."""
    if not place.model.is_sound:
        return "not now"
    name = world.new_name()
    made = lance.dataset(place.uri).create_branch(name, None)
    key = 1000 + world.named
    made.insert(people(key, name=name))
    place.model.branches[name] = Branch(place.uri, {**place.model.now.rows, key: name})
    return name


def tag(world: HandledTables, place: TablePlace) -> str:
    """Tag the newest version."""
    if not place.model.is_sound:
        return "not now"
    name = world.new_name()
    lance.dataset(place.uri).tags.create(name, lance.dataset(place.uri).version)
    place.model.tags[name] = place.model.now.rows
    return name


def clean_up(world: HandledTables, place: TablePlace) -> str:
    """Remove old versions with Lance's own call."""
    del world
    if not place.model.is_sound:
        return "not now"
    stats = lance.dataset(place.uri).cleanup_old_versions(
        older_than=timedelta(0), delete_unverified=True, error_if_tagged_old_versions=False
    )
    place.model.excuses.add(FreezeCause.INDEX_MADE_ANEW)  # Where nothing was merged, nothing else proves the index.
    return f"{stats.old_versions} versions"


def _has_content_of(place: TablePlace, version: Version) -> None:
    place.model.newest = lance.dataset(place.uri).version
    place.model.versions[place.model.newest] = version


TABLE_HANDS: Mapping[str, Hand] = {
    "copy": copy,
    "move": move,
    "swap": swap,
    "back up": back_up,
    "put back": put_back,
    "restore": restore,
    "overwrite": overwrite,
    "enable": enable,
    "unset": unset,
    "clone": clone,
    "branch": branch,
    "tag": tag,
    "clean up": clean_up,
}
