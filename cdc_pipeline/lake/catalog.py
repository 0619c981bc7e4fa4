"""The mirrors that a lake has, as Dagster's load of the definitions needs them: fast, and without Spark.

After each cut the names and columns of all mirrors are written to `<lake>/<pipeline>/catalog.json`. It is a copy for
the UI only: Delta has the truth, and a missing or damaged copy loads as "no mirrors yet".
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from cdc_pipeline.lake.local_files import write_at_once
from cdc_pipeline.mysql.model.table import TableName

if TYPE_CHECKING:
    from collections.abc import Iterable

    from cdc_pipeline.lake.paths import LakePaths

_FILE = "catalog.json"


@dataclass(frozen=True)
class CatalogColumn:
    name: str
    delta_type: str
    mysql_type: str


@dataclass(frozen=True)
class CatalogEntry:
    """One mirror: its name, its folder and its columns. `dropped` once upstream has dropped or renamed it; `moved_to` is
    the `database.table` that it is now, where that is known by its `mirror_id`. `upstream` is the
    `database.table` that it mirrors, where a route gives it another name, `merged` are those that it mirrors together."""

    database: str
    table: str
    path: str
    columns: tuple[CatalogColumn, ...]
    dropped: bool = False
    mirror_id: str = ""
    moved_to: str = ""
    upstream: str = ""
    merged: tuple[str, ...] = ()

    @property
    def name(self) -> TableName:
        return TableName(self.database, self.table)


def known_mirrors(paths: LakePaths) -> tuple[CatalogEntry, ...]:
    """The mirrors of the last cut, dropped ones included, in name order."""
    if not paths.is_local:
        return ()
    try:
        entries = json.loads((Path(paths.home) / _FILE).read_text(encoding="utf-8"))
        found = [
            CatalogEntry(
                **{
                    **entry,
                    "columns": tuple(CatalogColumn(**column) for column in entry["columns"]),
                    "merged": tuple(entry.get("merged", ())),
                }
            )
            for entry in entries
        ]
        return tuple(sorted(found, key=lambda entry: entry.name))
    except (OSError, ValueError, TypeError, KeyError, RecursionError):
        return ()


def remember_mirrors(paths: LakePaths, entries: Iterable[CatalogEntry]) -> None:
    """Writes the copy in one rename. Mirrors that are there no more stay, marked: their history must not vanish."""
    if not paths.is_local:
        return
    now = {entry.name: entry for entry in entries}
    places = {entry.mirror_id: str(entry.name) for entry in now.values() if entry.mirror_id}
    gone = {
        entry.name: replace(entry, dropped=True, moved_to=places.get(entry.mirror_id, ""))
        for entry in known_mirrors(paths)
        if entry.name not in now
    }
    text = json.dumps([asdict(entry) for _, entry in sorted({**gone, **now}.items())], ensure_ascii=False, indent=1)
    write_at_once(Path(paths.home) / _FILE, text)
