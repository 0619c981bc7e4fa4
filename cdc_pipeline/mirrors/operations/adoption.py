"""Makes the loaded tables of an export the beginning of their mirrors.

Each table becomes an event of `ddl_history` at the moment of the export: it replaces what the stream has sent before, and
the changes after it follow. If the newest cut has passed the moment, the tables are rebuilt; else the cut that passes it
applies the events, in their order among the statements.
"""

from __future__ import annotations

import glob
from collections.abc import Sequence
from dataclasses import dataclass

from pyspark.sql import functions as F

from cdc_pipeline.dialects.unified import TSO_SHIFT
from cdc_pipeline.errors import LakeError
from cdc_pipeline.lake.control_tables import read_maxima
from cdc_pipeline.lake.delta import Commit
from cdc_pipeline.lake.lake import Lake
from cdc_pipeline.lake.tables.baselines import BaselineTable, baseline_tables
from cdc_pipeline.lake.tables.batches import last_decoded_batch
from cdc_pipeline.lake.tables.ddl_history import NOT_APPLIED
from cdc_pipeline.lake.writes import append_once
from cdc_pipeline.mirrors.changes.progress import published_cut
from cdc_pipeline.mirrors.model.ddl_events import BASELINE_TOPIC, WITH_GAP, WITHOUT_GAP
from cdc_pipeline.mirrors.operations.rebuild import Rebuilder, RebuildReport
from cdc_pipeline.mysql.ddl.statements import BASELINE_EVENT
from cdc_pipeline.spark.small_frames import small_frame

_SHOWN = 5


@dataclass(frozen=True)
class Adoption:
    tables: tuple[BaselineTable, ...]
    rebuilt: RebuildReport | None
    """None: the cut that passes the moment of the export begins with the tables."""


def adopt(
    rebuilder: Rebuilder, baseline: str, *, changefeed_start: int | None = None, accept_gap: bool = False
) -> Adoption:
    """Adopts the included tables of a loaded baseline. A second time changes nothing. Call it as the only writer.

    `changefeed_start`: the TSO from which the changefeed has sent everything. Raises LakeError if the stream may lack
    changes after the export, unless `accept_gap`: then the tables have a gap.
    """
    maker = rebuilder.maker
    lake, selection = maker.lake, maker.selection
    tables = tuple(table for table in baseline_tables(lake, baseline) if selection.includes(table.name))
    if not tables:
        raise LakeError(f"the baseline {baseline} has no table that is included", pipeline=lake.paths.pipeline)
    if merged := [str(table.name) for table in tables if selection.merges(table.name)]:
        raise LakeError(
            f"{', '.join(merged[:_SHOWN])}: a table that a route merges with others cannot begin with an export: leave it "
            "out of snapshot.tables",
            pipeline=lake.paths.pipeline,
        )
    tso = tables[0].tso
    assert tso is not None, "an export without a TSO is not loaded"
    if not lake.exists("ddl_history"):
        raise LakeError("no batch is decoded yet: run the ingest first", pipeline=lake.paths.pipeline)
    holes = () if changefeed_start is not None and changefeed_start <= tso else _partitions_without_watermark(lake, tso)
    if holes and not accept_gap:
        raise LakeError(
            f"the stream may lack changes after the export's TSO {tso}: {', '.join(holes[:_SHOWN])} has no watermark at or "
            "before it. Set changefeed_start to the TSO from which the changefeed sends (its start-ts), or repeat the "
            "export now, or set accept_gap: true",
            pipeline=lake.paths.pipeline,
        )
    published = published_cut(lake)
    is_passed = published.resolved_tso is not None and tso < published.resolved_tso
    batch = published.last_batch if is_passed else last_decoded_batch(lake)
    # with the number of a cut, later ones do not look for statements to decide
    decided = published.cut_id if is_passed else None
    _append_events(lake, tables, tso, (batch, decided), maker.run_id, with_gap=bool(holes))
    if not is_passed:
        return Adoption(tables, None)
    names = [glob.escape(str(selection.mirror_name(table.name))) for table in tables]
    return Adoption(tables, rebuilder.rebuild(names))


def _partitions_without_watermark(lake: Lake, tso: int) -> tuple[str, ...]:
    """The partitions that have no watermark at or before the TSO: they may have begun later."""
    by = ("topic", "partition")
    known, early = (
        read_maxima(lake, "watermarks", by, "watermark_ts", *where) for where in ((), [("watermark_ts", "<=", tso)])
    )
    return tuple(f"{topic}/{number}" for topic, number in sorted(known.keys() - early.keys()))


def _append_events(
    lake: Lake,
    tables: Sequence[BaselineTable],
    tso: int,
    place: tuple[int, int | None],
    run_id: str,
    *,
    with_gap: bool,
) -> None:
    """Appends an event per table, unless the table has it already. `place`: `batch_id` and `cut_id`."""
    history = lake.read("ddl_history")
    topic = f"{BASELINE_TOPIC}{tables[0].baseline}"
    known = {row["partition"] for row in history.where(F.col("topic") == topic).select("partition").collect()}
    rows = []
    for table in tables:
        if table.number not in known:
            values = {
                "batch_id": place[0],
                "cut_id": place[1],
                "topic": topic,
                "partition": table.number,
                "offset": 0,
                "kind": BASELINE_EVENT,
                "database": table.name.database,
                "table": table.name.table,
                "sql": table.create,
                "type": WITH_GAP if with_gap else WITHOUT_GAP,
                "dialect": "",
                "commit_ts": tso,
                "at": tso,
                "exact_ts": True,
                "es": tso >> TSO_SHIFT,
                "status": NOT_APPLIED,
                "changes": [f"load {table.name}"],
            }
            rows.append(tuple(values.get(name) for name in history.columns))
    if rows:
        commit = Commit(
            f"{lake.paths.app_id('ddl_history')}:{topic}",
            len(known) + 1,
            {"run_id": run_id, "baseline": tables[0].baseline},
        )
        append_once(small_frame(lake.spark, rows, history.schema), lake.paths.table("ddl_history"), commit)
