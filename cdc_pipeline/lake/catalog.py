"""The mirrors of a lake, readable without Spark while Dagster loads the definitions.

Each cut writes the names and columns of all mirrors to `<lake>/<pipeline>/catalog.json`. The file is a copy for the UI
only, the Delta tables decide: a missing or damaged file reads as "no mirrors yet".
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from cdc_pipeline.errors import CdcError
from cdc_pipeline.lake.paths import LakePaths
from cdc_pipeline.lake.store import read_file, write_file
from cdc_pipeline.mysql.model.table import TableName
from cdc_pipeline.stored_json import StoredJson

_FILE = "catalog.json"


@dataclass(frozen=True)
class CatalogColumn:
    name: str
    delta_type: str
    mysql_type: str


@dataclass(frozen=True)
class CatalogEntry:
    """One mirror."""

    database: str
    table: str
    path: str
    columns: tuple[CatalogColumn, ...]
    dropped: bool = False
    """Whether upstream has dropped or renamed the table."""
    mirror_id: str = ""
    moved_to: str = ""
    """After a rename: the present `database.table`, if the mirror is found by its `mirror_id`."""
    upstream: str = ""
    """The `database.table` that it mirrors, if a route gives the mirror another name."""
    merged: tuple[str, ...] = ()
    """The source tables of a merged mirror, as `database.table`."""
    version: int = -1
    """The Delta version that was looked at."""

    @property
    def name(self) -> TableName:
        return TableName(self.database, self.table)


_STORED = StoredJson(tuple[CatalogEntry, ...])


def read_catalog(paths: LakePaths) -> tuple[CatalogEntry, ...]:
    """The mirrors of the last cut and the dropped ones, sorted by name. Empty for a lake without `has_files`.

    Raises LakeError or TransientError if the object store cannot be read.
    """
    try:
        stored = read_file(paths.home, _FILE) if paths.has_files else None
    except OSError:
        return ()
    try:
        return () if stored is None else _STORED.from_json(stored.decode())
    except (ValueError, CdcError):
        return ()


def write_catalog(paths: LakePaths, entries: Iterable[CatalogEntry]) -> None:
    """Replaces the catalog by `entries` and by the earlier mirrors that are not among them, marked as `dropped`.

    Dropped mirrors stay, so that the history of their assets remains visible. Does nothing for a lake without `has_files`.
    """
    if not paths.has_files:
        return
    present = {entry.name: entry for entry in entries}
    name_by_id = {entry.mirror_id: str(entry.name) for entry in present.values() if entry.mirror_id}
    dropped = {
        entry.name: replace(entry, dropped=True, moved_to=name_by_id.get(entry.mirror_id, ""))
        for entry in read_catalog(paths)
        if entry.name not in present
    }
    by_name = sorted({**dropped, **present}.items())
    write_file(paths.home, _FILE, _STORED.to_json(tuple(entry for _, entry in by_name)))
