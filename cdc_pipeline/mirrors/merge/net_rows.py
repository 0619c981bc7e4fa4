"""The net changes of a cut: typed and with the driver for small mirrors, for all others a view that their steps query."""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as F

from cdc_pipeline.lake.paths import LakePaths
from cdc_pipeline.mirrors.changes.row_groups import text_bytes
from cdc_pipeline.mirrors.merge.net_changes import net_changes, resolve_contested
from cdc_pipeline.mirrors.merge.row_entries import RowSet, row_entries
from cdc_pipeline.mirrors.merge.small_rows import MAX_BYTES, StepRows, fetch_rows, small_steps
from cdc_pipeline.mirrors.model.steps import ApplyRows, Step


@dataclass(frozen=True)
class NetRows:
    """Made by `reduce_changes`. Call `close` after use."""

    view: str
    """A global temporary view of `net_changes`."""
    small: Mapping[int, StepRows]
    """The rows of steps on small mirrors."""
    _counts: Counter[int]
    _net: DataFrame

    def count(self, without: Collection[int] = ()) -> int:
        """The number of net changes, a change of the key being one, without those of some steps."""
        return sum(count for step, count in self._counts.items() if step not in without)

    def close(self) -> None:
        self._net.sparkSession.catalog.dropGlobalTempView(self.view)
        self._net.unpersist()


def reduce_changes(
    changes: DataFrame,
    row_sets: Mapping[int, RowSet],
    steps: Sequence[Step],
    paths: LakePaths,
    *,
    time_zone: str,
    salt: str,
    size: int | None,
) -> NetRows:
    """Plans the query of the net changes, counts them, and fetches those of small mirrors.

    `size`: that of the images' texts in bytes, if the changes are few. Then one query does all, if all mirrors are small.
    """
    entries, small = row_entries(changes, row_sets.values()), small_steps(paths, steps, row_sets)
    net = net_changes(entries)
    if size is not None and size <= MAX_BYTES and len(small) == len(row_sets):
        fetched = fetch_rows(net, small, row_sets, time_zone, salt) if small else {}
        if not any(rows.flag("contested").any() for rows in fetched.values()):
            counts = Counter({step: int(rows.flag("counts").sum()) for step, rows in fetched.items()})
            return _with_view(net, fetched, counts)
    net = net.persist()
    groups = _count(net, small)
    if any(row["contested"] for row in groups):
        unresolved, net = net, resolve_contested(entries, net).persist()
        groups = _count(net, small)
        unresolved.unpersist()
    fitting, left = {}, MAX_BYTES
    for row in sorted(groups):
        if row["step"] in small and row["size"] <= left:
            fitting[row["step"]], left = small[row["step"]], left - row["size"]
    fetched = fetch_rows(net, fitting, row_sets, time_zone, salt) if fitting else {}
    return _with_view(net, fetched, Counter({row["step"]: row["counted"] for row in groups}))


def _count(net: DataFrame, small: Mapping[int, ApplyRows]) -> list[Row]:
    fetched = F.when(F.col("step").isin(list(small)), F.expr(text_bytes("after")))
    columns = (
        F.count_if("counts").alias("counted"),
        F.count_if("contested").alias("contested"),
        F.sum(fetched).alias("size"),
    )
    return net.groupBy("step").agg(*columns).collect()


def _with_view(net: DataFrame, small: Mapping[int, StepRows], counts: Counter[int]) -> NetRows:
    view = f"net_{uuid.uuid4().hex}"
    net.createOrReplaceGlobalTempView(view)
    return NetRows(view, small, counts, net)
