"""Makes one schema of a catalog equal to the tables or views that it should have."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from cdc_pipeline.catalogs.entries import CUT_ID, NAME, Definition, Entry, definition, is_own
from cdc_pipeline.lake.paths import first_line

_MOST_FAILURES = 3
"""After which a schema is given up: the catalog does not respond any more."""


class Catalog(Protocol):
    """A connection to a catalog. Dropping an entry or a schema leaves all files."""

    def databases(self) -> dict[str, Mapping[str, str]]:
        """Name → parameters of every schema."""

    def create_database(self, name: str, parameters: Mapping[str, str], location: str) -> None: ...

    def alter_database(self, name: str, parameters: Mapping[str, str], location: str) -> None: ...

    def drop_database(self, name: str) -> None:
        """Drops an empty schema."""

    def entries(self, database: str) -> list[Entry]:
        """All tables and views of a schema."""

    def create(self, database: str, entry: Definition) -> None: ...

    def alter(self, database: str, name: str, entry: Definition) -> None:
        """Replaces the entry `name`, also its name if the new one has another."""

    def drop(self, database: str, name: str) -> None: ...

    def close(self) -> None: ...


@dataclass(frozen=True)
class Action:
    kind: Literal["drop", "alter", "create"]
    name: str
    """The present name, or that of a new entry."""
    entry: Entry | None = None
    """What it is to be; None for `drop`."""


def plan_actions(found: Sequence[Entry], wanted: Sequence[Entry], owner: Mapping[str, str]) -> list[Action]:
    """What turns the own ones of `found` into `wanted`, in order. An entry is recognized by its mirror id.

    Entries whose names belong to somebody else's are not created. An entry whose new name is still in use by another
    mirror, as after a swap of two names, is dropped and created.
    """
    own = {entry.name: entry for entry in found if is_own(entry.parameters, owner)}
    taken = {entry.name for entry in found} - own.keys()
    by_id = {entry.mirror_id: entry for entry in wanted if entry.name not in taken}
    kept: set[str] = set()
    drops, alters = list[Action](), list[Action]()
    for name, entry in own.items():
        target = by_id.get(entry.mirror_id)
        holder = own.get(target.name) if target and target.name != name else None
        if target is None or target.mirror_id in kept or (holder and holder.mirror_id in by_id):
            drops.append(Action("drop", name))
            continue
        kept.add(target.mirror_id)
        if target != entry:
            alters.append(Action("alter", name, target))
    return [*drops, *alters, *(Action("create", entry.name, entry) for key, entry in by_id.items() if key not in kept)]


def reconcile(
    catalog: Catalog, database: str, wanted: Sequence[Entry], owner: Mapping[str, str]
) -> tuple[list[str], bool]:
    """Applies the actions for one schema. Returns what could not be done, and whether the schema has entries of others."""
    found = catalog.entries(database)
    others = {entry.name for entry in found if not is_own(entry.parameters, owner)}
    problems = [
        f"{database}.{entry.name} exists and is not of this pipeline, so {entry.parameters[NAME]} has no entry"
        for entry in wanted
        if entry.name in others
    ]
    failures = 0
    for action in plan_actions(found, wanted, owner):
        try:
            _apply(catalog, database, action)
        except Exception as error:
            problems.append(f"{database}.{action.name}: {first_line(error)}")
            failures += 1
            if failures == _MOST_FAILURES:
                break
    return problems, bool(others)


def _apply(catalog: Catalog, database: str, action: Action) -> None:
    if action.entry is None:
        catalog.drop(database, action.name)
    elif action.kind == "alter":
        catalog.alter(database, action.name, definition(action.entry))
    else:
        catalog.create(database, definition(action.entry))


def own_databases(databases: Mapping[str, Mapping[str, str]], owner: Mapping[str, str]) -> Iterator[tuple[str, int]]:
    """The own schemas: their names, and the cut whose views they have; 0 if they have tables."""
    for name, parameters in databases.items():
        if is_own(parameters, owner):
            yield name, int(parameters.get(CUT_ID, 0))
