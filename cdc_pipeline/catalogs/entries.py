"""Tables and views as a catalog has them, and what Spark writes for them to a metastore."""

from __future__ import annotations

import functools
import hashlib
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import pyspark
from pyspark.sql.types import StructType

from cdc_pipeline.lake.delta import TableState
from cdc_pipeline.lake.paths import LakePaths, is_local_path
from cdc_pipeline.mirrors.cuts.cut_report import MirrorEntry
from cdc_pipeline.mirrors.merge.soft_deletes import LIVE
from cdc_pipeline.mirrors.model.state import DELETED
from cdc_pipeline.mysql.model.quoted_names import quoted

PIPELINE, LAKE, NAME, PATH, COMMENT = "cdc.pipeline", "cdc.lake", "cdc.name", "cdc.path", "comment"
MIRROR_ID = "cdc.mirror_id"
CUT_ID = "cdc.cut_id"
"""Of a schema with the views of a cut."""
PLACES = "cdc.places"
"""Of such a schema: the digest of the mirrors' places that all of its views have."""
OWN_PARAMETERS = (PIPELINE, LAKE, MIRROR_ID, NAME, PATH, COMMENT, CUT_ID, PLACES)
_MOST_CHARACTERS = 4000
"""Of a parameter's value in Hive."""
_PLAIN = re.compile(r"[a-z0-9_]+")


@dataclass(frozen=True)
class Entry:
    """A table or a view."""

    name: str
    parameters: Mapping[str, str]
    """Those of `OWN_PARAMETERS` that it has. Two entries are equal if their names and these are."""
    state: Callable[[], TableState] | None = field(default=None, compare=False)
    """Reads the mirror at the cut of a view that is to be written; None for a table, and for what a catalog lists."""
    keeps_deleted: bool = field(default=False, compare=False)

    @property
    def mirror_id(self) -> str:
        return self.parameters.get(MIRROR_ID, "")


@dataclass(frozen=True)
class Definition:
    """What is written for an entry."""

    name: str
    parameters: Mapping[str, str]
    location: str
    """Empty for a view."""
    sql: str
    """Empty for a table."""


def catalog_name(name: str) -> str:
    """The name itself if it has lower-case letters, digits and `_` only, as Hive stores names. Else its letters with a
    digest, because other names may have the same letters: `Order-Items` becomes `order_items_21f5372a`."""
    if _PLAIN.fullmatch(name):
        return name
    letters = re.sub(r"[^a-z0-9_]+", "_", name.lower()).strip("_") or "name"
    return f"{letters}_{hashlib.sha256(name.encode()).hexdigest()[:8]}"


def owner_parameters(paths: LakePaths) -> dict[str, str]:
    """What marks schemas, tables and views as those of this pipeline. Others are never changed.

    With the lake, because a metastore may have those of a pipeline of the same name in a lake for tests.
    """
    return {PIPELINE: paths.pipeline, LAKE: paths.home}


def is_own(parameters: Mapping[str, str], owner: Mapping[str, str]) -> bool:
    return owner.items() <= parameters.items()


def table_entry(mirror: MirrorEntry, owner: Mapping[str, str]) -> Entry:
    comment = f"{mirror.name}, mirrored by the pipeline {owner[PIPELINE]}"
    if mirror.keeps_deleted:
        comment += f". Rows deleted upstream stay, with {DELETED} true"
    return Entry(catalog_name(mirror.name.table), {**_identity(mirror, owner), COMMENT: comment})


def view_entries(
    mirrors: Sequence[MirrorEntry], owner: Mapping[str, str], state: Callable[[MirrorEntry], TableState]
) -> list[Entry]:
    """The views of a cut. A table name that several databases have gets the database's name, too."""
    counts = Counter(catalog_name(mirror.name.table) for mirror in mirrors)
    return [
        Entry(
            name if counts[name := catalog_name(mirror.name.table)] == 1 else catalog_name(str(mirror.name)),
            _identity(mirror, owner),
            functools.partial(state, mirror),
            mirror.keeps_deleted,
        )
        for mirror in mirrors
    ]


def _identity(mirror: MirrorEntry, owner: Mapping[str, str]) -> dict[str, str]:
    return {**owner, MIRROR_ID: mirror.mirror_id, NAME: str(mirror.name), PATH: location(mirror.path)}


def location(path: str) -> str:
    """The path as Spark writes it: with a scheme, because another default than the local files may be set."""
    return f"file:{path}" if is_local_path(path) else path


def definition(entry: Entry) -> Definition:
    """The entry with what Spark 4 writes for a Delta table without columns, or for a view."""
    created = {**entry.parameters, "spark.sql.create.version": pyspark.__version__}
    if entry.state is None:
        provider = {"spark.sql.sources.provider": "delta", "spark.sql.partitionProvider": "catalog", "EXTERNAL": "TRUE"}
        return Definition(
            entry.name, {**created, **provider, **_split(StructType().json())}, entry.parameters[PATH], ""
        )
    state = entry.state()
    columns = StructType([column for column in state.schema if not (entry.keeps_deleted and column.name == DELETED)])
    # the path of a table, and no name: a name is of another table after a RENAME
    table = f"delta.{quoted(f'{entry.parameters[PATH]}@v{state.version}')}"
    sql = f"SELECT * FROM {table}"
    if entry.keeps_deleted:
        sql = f"SELECT {', '.join(map(quoted, columns.names))} FROM {table} WHERE {LIVE}"
    view = {
        "view.catalogAndNamespace.numParts": "2",
        "view.catalogAndNamespace.part.0": "spark_catalog",
        "view.catalogAndNamespace.part.1": "default",
        "view.query.out.numCols": str(len(columns)),
        **{f"view.query.out.col.{number}": name for number, name in enumerate(columns.names)},
    }
    return Definition(entry.name, {**created, **view, **_split(columns.json())}, "", sql)


def _split(schema: str) -> dict[str, str]:
    name = "spark.sql.sources.schema"
    if len(schema) <= _MOST_CHARACTERS:
        return {name: schema}
    parts = [schema[start : start + _MOST_CHARACTERS] for start in range(0, len(schema), _MOST_CHARACTERS)]
    return {
        f"{name}.numParts": str(len(parts)),
        **{f"{name}.part.{number}": part for number, part in enumerate(parts)},
    }
