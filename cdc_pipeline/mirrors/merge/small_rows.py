"""The rows of all steps on small mirrors: typed in one query, fetched as Arrow.

A query of its own for each table costs ten times what its rows cost. Here each cell is a row of the frame, so the size of
the query depends on how many kinds of cells there are, not on how many tables.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, reduce
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa  # type: ignore[import-untyped]
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType

from cdc_pipeline.dialects.traits import Trait, dialect_has_trait
from cdc_pipeline.lake.paths import LakePaths, is_for_delta_rs
from cdc_pipeline.lake.small_tables import open_small_table
from cdc_pipeline.lake.store import file_names
from cdc_pipeline.mirrors.merge.masked_values import masked, with_pads
from cdc_pipeline.mirrors.merge.row_entries import RowSet
from cdc_pipeline.mirrors.merge.typed_cells import CellKind, typed
from cdc_pipeline.mirrors.model.masks import HASH, NULL
from cdc_pipeline.mirrors.model.state import METADATA, MirrorState
from cdc_pipeline.mirrors.model.steps import ApplyRows, Step
from cdc_pipeline.mysql.types.local_times import NEVER, TWICE
from cdc_pipeline.mysql.types.spark_types import spark_type
from cdc_pipeline.positions import POSITION
from cdc_pipeline.spark.jvm import built_once
from cdc_pipeline.spark.small_frames import is_small, small_frame

MAX_BYTES = 64 * 2**20
"""How many bytes of texts the driver fetches for a cut."""
_BAD, _ZERO_DATE, _DAMAGED = "bad", "zero", "damaged"
_FLAGS = (
    *("deleted", "delta", "counts", "contested", "moved", "update_only", "order_unknown", "replaces_row"),
    "key_only_since",
)
_OF_ROW = {f"row_{name}": name for name in (*_FLAGS, *METADATA.names, "is_unidentified")}
_CELLS = "step INT, cells ARRAY<STRUCT<name: STRING, kind: INT, position: INT>>"
_Flags: TypeAlias = npt.NDArray[np.bool_]
_Cell: TypeAlias = "tuple[str, int, int | None]"
"""Of each column of a step: name, number of its kind, place in the key."""


@dataclass(frozen=True)
class StepRows:
    """The typed, masked rows of one step."""

    values: pa.Table
    """The columns of the upstream table."""
    flags: pa.Table
    """METADATA and `_FLAGS` of `net_changes`."""
    sent: Mapping[str, _Flags]
    """For each absent column, which rows have it."""
    findings: Mapping[str, Mapping[str, int]]
    """Finding → column → number of rows with it."""

    def __len__(self) -> int:
        return len(self.values)

    def flag(self, name: str) -> _Flags:
        return as_flags(self.flags[name])

    def has(self, name: str) -> _Flags:
        """As `has_<i>` of `typed_rows`."""
        return self.sent[name] | (self.flag("replaces_row") & ~self.flag("moved"))

    @property
    def is_readable(self) -> bool:
        """Whether the types of the mirror hold all texts. If not, `typed_rows` tells which rows are bad."""
        return _BAD not in self.findings

    @cached_property
    def found(self) -> dict[str, Any]:
        """What `apply_rows` reports of the rows, under the names in its query."""
        places = zip(*(self.flags[f"_{name}"].to_pylist() for name in POSITION), strict=True)
        unordered = [
            place for place, is_unordered in zip(places, self.flag("order_unknown"), strict=True) if is_unordered
        ]
        since = self.flags["key_only_since"].filter(pa.array(~self.flag("deleted"))).drop_null().to_pylist()
        # NULL, which is no TSO, comes first
        since.sort(key=lambda place: (place["commit_ts"] or 0, *(place[name] for name in POSITION)))
        return {
            "zero": sum(self.findings.get(_ZERO_DATE, {}).values()),
            "damaged": self.findings.get(_DAMAGED, {}),
            "doubtful": (),
            "ambiguous_times": [f"{how}:{name}" for how in (TWICE, NEVER) for name in self.findings.get(how, ())],
            "unordered": len(unordered),
            "first_unordered": min(unordered, default=None),
            "key_only": len(since),
            "first_key_only": since[0] if since else None,
        }


def as_flags(values: pa.ChunkedArray) -> _Flags:
    return np.asarray(values.to_numpy(), dtype=bool)


def small_steps(paths: LakePaths, steps: Sequence[Step], row_sets: Mapping[int, RowSet]) -> dict[int, ApplyRows]:
    """The steps whose rows the driver merges into their mirrors (`rewrite_rows`), if these are still small then."""
    found = {}
    for index, step in enumerate(steps):
        if isinstance(step, ApplyRows) and is_small(step.changes) and _has_cells_only(step, row_sets[index]):
            path = step.state.folder(paths)
            if is_for_delta_rs(path) and (open_small_table(path) is not None or not file_names(f"{path}/_delta_log")):
                found[index] = step
    return found


def _has_cells_only(step: ApplyRows, row_set: RowSet) -> bool:
    """Whether each value of the step's rows depends on its own text, and the driver can find equal rows."""
    state, omits = step.state, any(dialect_has_trait(name, Trait.ABSENT_IS_DEFAULT) for name, _ in step.encodings)
    if state.computed_shown or step.generated or (omits and step.absent):
        return False
    return not is_folded(row_set, state) and not any(
        isinstance(spark_type(column.type), ArrayType) for column in row_set.identity.columns
    )


def is_folded(row_set: RowSet, state: MirrorState) -> bool:
    """Whether rows of a table without a key may be equal after masking."""
    return row_set.keyless and NULL in dict(state.masks).values()


def fetch_rows(
    net: DataFrame, steps: Mapping[int, ApplyRows], row_sets: Mapping[int, RowSet], time_zone: str, salt: str
) -> dict[int, StepRows]:
    """The rows of these steps of `net_changes`, from `small_steps`."""
    kinds: dict[CellKind, int] = {}
    cells: dict[int, list[_Cell]] = {}
    for index, step in steps.items():
        names = row_sets[index].columns
        key, places = () if row_sets[index].keyless else names, {name: place for place, name in enumerate(names)}
        for column in step.state.schema.columns:
            kind = kinds.setdefault(CellKind.of(column, step.state, step.encodings, key), len(kinds))
            cells.setdefault(index, []).append((column.name, kind, places.get(column.name)))
    frame = _cell_frame(net, cells)
    if any(kind.mask == HASH for kind in kinds):
        frame = with_pads(frame, salt)
    slots, columns = _typed_columns(tuple(kinds), time_zone)
    fetched = frame.select("step", *_OF_ROW, "is_in_image", *columns).toArrow().combine_chunks()
    numbers = fetched["step"].to_numpy()
    found = {}
    for index, step in steps.items():
        cells_of_rows = np.flatnonzero(numbers == index).reshape(-1, len(cells[index]))
        found[index] = _step_rows(fetched, cells_of_rows, [(name, slots[kind]) for name, kind, _ in cells[index]], step)
    return found


def _cell_frame(net: DataFrame, cells: Mapping[int, Sequence[_Cell]]) -> DataFrame:
    """One row per cell of these steps, those of a row of `net` in the order of the columns.

    Only the first one has the other columns of its row. `is_sent`: whether the row has the column; `is_in_image`: whether
    its `after` has it.
    """
    small = small_frame(net.sparkSession, cells.items(), _CELLS)
    frame = net.join(F.broadcast(small), "step").withColumn("is_unidentified", F.col("key").isNull())
    frame = frame.select("*", F.posexplode("cells").alias("i", "cell"))
    in_key, name = F.col("cell.position").isNotNull(), F.col("cell.name")
    is_in_image = F.coalesce(F.map_contains_key("after", name), F.lit(False))
    return frame.select(
        *("step", "dialect", "deleted"),
        *(F.when(F.col("i") == 0, F.col(column)).alias(own) for own, column in _OF_ROW.items()),
        name.alias("name"),
        F.col("cell.kind").alias("kind"),
        F.when(in_key, F.get("key", F.col("cell.position"))).otherwise(F.col("after")[name]).alias("text"),
        F.when(in_key, F.col("key").isNotNull()).otherwise(is_in_image).alias("is_sent"),
        is_in_image.alias("is_in_image"),
    )


def _step_rows(
    fetched: pa.Table, places: npt.NDArray[np.int64], columns: Sequence[tuple[str, str]], step: ApplyRows
) -> StepRows:
    """The rows of one step. `places`: those of the cells of each row in the fetched table; `columns`: name and slot."""
    fields = {column: fetched[own].take(places[:, 0]) for own, column in _OF_ROW.items()}
    values = {name: fetched[slot].take(places[:, i]) for i, (name, slot) in enumerate(columns)}
    findings: dict[str, dict[str, int]] = {}
    for i, (name, _) in enumerate(columns):
        for found in fetched["finding"].take(places[:, i]).drop_null().value_counts().to_pylist():
            findings.setdefault(found["values"], {})[name] = found["counts"]
    if any(fields["is_unidentified"].to_pylist()):
        findings.setdefault(_BAD, {})
    names, absent = list(values), (*step.absent, *step.absent_in_deletes)
    sent = {name: fetched["is_in_image"].take(places[:, names.index(name)]).to_numpy() for name in absent}
    return StepRows(pa.table(values), pa.table(fields), sent, findings)


@built_once
def _typed_columns(kinds: tuple[CellKind, ...], time_zone: str) -> tuple[list[str], list[Column]]:
    """The slot of each kind, and the columns: a slot for each type of the mirrors, and `finding`."""
    by_slot: dict[str, list[tuple[int, Column]]] = {}
    slots, findings = [], []
    for number, kind in enumerate(kinds):
        cell = typed(kind, F.col("name"), F.col("text"), F.col("is_sent"), time_zone)
        target = spark_type(kind.type)
        value = cell.value if kind.mask is None else masked(cell.value, target, kind.mask)
        slots.append("string" if kind.mask == HASH else target.simpleString())
        by_slot.setdefault(slots[-1], []).append((number, value))
        found = [F.when(cell.bad.isNotNull(), F.lit(_BAD)), F.when(cell.is_zero_date, F.lit(_ZERO_DATE))]
        found += [] if cell.is_damaged is None else [F.when(cell.is_damaged, F.lit(_DAMAGED))]
        found += [] if cell.ambiguous_time is None else [cell.ambiguous_time]
        findings.append((number, F.coalesce(*found)))
    return slots, [
        *(_by_kind(values).alias(slot) for slot, values in by_slot.items()),
        _by_kind(findings).alias("finding"),
    ]


def _by_kind(values: Iterable[tuple[int, Column]]) -> Column:
    (number, value), *others = values
    first = F.when(F.col("kind") == number, value)
    return reduce(lambda case, branch: case.when(F.col("kind") == branch[0], branch[1]), others, first)
