"""Keeps a catalog up to date with the cuts of a run."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from pyspark.sql import SparkSession

from cdc_pipeline.catalogs.entries import (
    CUT_ID,
    NAME,
    PLACES,
    Entry,
    catalog_name,
    is_own,
    location,
    owner_parameters,
    table_entry,
    view_entries,
)
from cdc_pipeline.catalogs.reconcile import Catalog, own_databases, reconcile
from cdc_pipeline.errors import LakeError
from cdc_pipeline.lake.delta import TableState, table_state
from cdc_pipeline.lake.delta_log import readable_version
from cdc_pipeline.lake.lake import Lake
from cdc_pipeline.lake.paths import first_line
from cdc_pipeline.mirrors.changes.progress import cut_with_id
from cdc_pipeline.mirrors.cuts.cut_report import MirrorEntry, published_entries
from cdc_pipeline.mirrors.cuts.reading import mirror_paths

KEPT_CUTS = 5
_PAUSE_SECONDS = 60.0
_MOST_LISTED = 5


class CatalogSettings(Protocol):
    """A catalog as declared: its `str` is for warnings."""

    def connect(self, spark: SparkSession) -> Catalog: ...


@dataclass
class CatalogUpdates:
    """The catalog of a pipeline, for the cuts of one run.

    A run that follows its source publishes a cut every few seconds, and 500 mirrors are 500 new views. So the catalog is
    reconciled with the newest cut when a mirror appears, moves or disappears; else after 60 seconds, or 20 times the
    duration of the last time if that is longer. The schemas of cuts are those of the newest five cuts that were reconciled.
    A failure warns, and the next time repairs all.
    """

    settings: CatalogSettings | None
    warn: Callable[[str], None]
    """Receives one line per failed reconciliation."""
    _newest: tuple[int, tuple[MirrorEntry, ...]] | None = None
    """The newest cut, if the catalog does not have it yet."""
    _places: str = ""
    """Those of the last reconciliation."""
    _next_time: float = field(default_factory=time.monotonic)

    @property
    def is_due(self) -> bool:
        """Whether a cut waits for `catch_up`, and its pause has passed."""
        return self._newest is not None and time.monotonic() >= self._next_time

    def after_cut(self, lake: Lake, cut_id: int, mirrors: Sequence[MirrorEntry]) -> None:
        """Reconciles the catalog with a published cut, or keeps the cut for later. Never raises an Exception."""
        if self.settings is not None:
            self._newest = cut_id, tuple(mirrors)
            if self.is_due or _digest(mirrors) != self._places:
                self.catch_up(lake)

    def catch_up(self, lake: Lake) -> None:
        """Reconciles the catalog with the newest cut now."""
        if self.settings is None or self._newest is None:
            return
        (cut_id, mirrors), self._newest = self._newest, None
        self._places, started = _digest(mirrors), time.monotonic()
        try:
            with contextlib.closing(self.settings.connect(lake.spark)) as catalog:
                problems = update_catalog(catalog, lake, cut_id, mirrors)
        except Exception as error:
            problems = [first_line(error)]
        ended = time.monotonic()
        self._next_time = ended + max(_PAUSE_SECONDS, 20 * (ended - started))
        if problems:
            more = f"; and {len(problems) - _MOST_LISTED} more" if len(problems) > _MOST_LISTED else ""
            self.warn(
                f"the catalog {self.settings} is not up to date with cut {cut_id}; a later cut tries again: "
                f"{'; '.join(problems[:_MOST_LISTED])}{more}"
            )


def update_catalog(catalog: Catalog, lake: Lake, cut_id: int, mirrors: Sequence[MirrorEntry]) -> list[str]:
    """Reconciles all schemas of the pipeline with a cut. Returns what could not be done, one line each."""
    owner, problems = owner_parameters(lake.paths), list[str]()
    databases = catalog.databases()
    wanted: dict[str, list[Entry]] = {}
    true_names = {catalog_name(mirror.name.database): mirror.name.database for mirror in mirrors}
    for mirror in mirrors:
        wanted.setdefault(catalog_name(mirror.name.database), []).append(table_entry(mirror, owner))
    home, places = location(lake.paths.home), _digest(mirrors)

    def reconcile_schema(name: str, entries: Sequence[Entry], parameters: Mapping[str, str]) -> None:
        """`parameters`: in addition to those of the owner."""
        if name not in databases:
            # no folder of its own in the warehouse, which would remain
            catalog.create_database(name, {**owner, **parameters}, home)
        elif not is_own(databases[name], owner) or (CUT_ID in parameters) != (CUT_ID in databases[name]):
            problems.append(
                f"the schema {name} exists and is not of this pipeline, so {len(entries)} entries are missing"
            )
            return
        failed, _ = reconcile(catalog, name, entries, owner)
        problems.extend(failed)
        if CUT_ID in parameters and not failed:
            catalog.alter_database(name, {**owner, **parameters, PLACES: places}, home)

    for name, entries in wanted.items():
        reconcile_schema(name, entries, {NAME: true_names[name]})
    prefix = catalog_name(lake.paths.pipeline)
    cuts = {number: name for name, number in own_databases(databases, owner) if number}
    # a lake that was created again has lower numbers than the cuts in the catalog
    earlier = sorted(number for number in cuts if number < cut_id)[-KEPT_CUTS + 1 :]
    for number in (cut_id, *earlier):
        name = cuts.get(number, f"{prefix}_cut_{number}")
        if databases.get(name, {}).get(PLACES) != places:
            found = _mirrors_of(lake, number, mirrors) if number in earlier else mirrors
            views = view_entries(found, owner, functools.partial(_state, lake, number == cut_id))
            reconcile_schema(name, views, {CUT_ID: str(number)})
    kept = {*wanted, *(cuts.get(number, "") for number in (cut_id, *earlier))}
    for name, _ in own_databases(databases, owner):
        if name not in kept:
            failed, has_others = reconcile(catalog, name, (), owner)
            problems.extend(failed)
            if not failed and not has_others:
                catalog.drop_database(name)
    return problems


def _mirrors_of(lake: Lake, cut_id: int, newest: Iterable[MirrorEntry]) -> list[MirrorEntry]:
    """The mirrors of an earlier cut at their present paths; without dropped ones if one of them was removed."""
    paths = {mirror.mirror_id: mirror.path for mirror in newest}
    entries = published_entries(cut_with_id(lake, cut_id), lake.paths)
    with contextlib.suppress(LakeError):
        paths |= mirror_paths(lake, [entry for entry in entries if entry.mirror_id not in paths])
    return [replace(entry, path=paths[entry.mirror_id]) for entry in entries if entry.mirror_id in paths]


def _state(lake: Lake, is_newest: bool, mirror: MirrorEntry) -> TableState:
    """The mirror at its cut, at the newest version with these rows: Delta reads an old version for a week only, unless it is
    the newest. Raises LakeError if the mirror can no longer be read."""
    state = table_state(lake.spark, mirror.path)
    if state is not None and state.version != mirror.version:
        version = readable_version(lake.spark, mirror.path, mirror.version)
        if version is not None and version != state.version:
            state = table_state(lake.spark, mirror.path, version)
        elif version is None and not is_newest:
            state = None
    if state is None:
        raise LakeError(f"{mirror.path} has no version {mirror.version}")
    return state


def _digest(mirrors: Iterable[MirrorEntry]) -> str:
    """Identifies names and paths of the mirrors."""
    places = sorted((mirror.mirror_id, str(mirror.name), mirror.path) for mirror in mirrors)
    return hashlib.sha256(repr(places).encode()).hexdigest()[:16]
