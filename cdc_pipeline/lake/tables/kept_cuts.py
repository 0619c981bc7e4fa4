"""`kept_cuts`: cuts whose mirrors are kept, so that a rebuild can begin there, and the batches that were removed."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timezone

import pyarrow as pa  # type: ignore[import-untyped]

from cdc_pipeline.lake.control_tables import append_rows, read_rows
from cdc_pipeline.lake.delta import Commit
from cdc_pipeline.lake.lake import Lake

KEPT_CUTS = "kept_cuts"
KEPT = "kept"
_SCHEMA = pa.schema(
    {
        # KEPT, or the table from which batches are removed
        "kind": pa.string(),
        "cut_id": pa.int64(),
        # KEPT: the last batch whose changes the cut has, like those of all batches before. Else the last removed one
        "batch_id": pa.int64(),
        "at": pa.timestamp("us", "UTC"),
        "run_id": pa.string(),
    }
)


REMOVED_FROM = ("raw_topic_snapshot", "change_log")
"""The tables from which batches can be removed."""


@dataclass(frozen=True)
class KeptCut:
    cut_id: int
    covered: int
    """The last batch whose row changes the cut has, like those of all batches before."""
    at: datetime


def append_kept(lake: Lake, kind: str, kept: KeptCut, run_id: str) -> None:
    """Appends a row. `kind`: KEPT, or the name of a table whose batches up to `kept.covered` are about to be removed."""
    number = len(read_rows(lake, KEPT_CUTS, columns=["kind"])) + 1
    row = {"kind": kind, "cut_id": kept.cut_id, "batch_id": kept.covered, "at": kept.at, "run_id": run_id}
    commit = Commit(lake.paths.app_id(KEPT_CUTS), number, {"run_id": run_id})
    append_rows(lake, KEPT_CUTS, pa.Table.from_pylist([row], _SCHEMA), commit)


def kept_cuts(lake: Lake) -> list[KeptCut]:
    """The kept cuts, oldest first."""
    rows = read_rows(lake, KEPT_CUTS, ("kind", "=", KEPT))
    # Spark's times are local
    found = (KeptCut(row["cut_id"], row["batch_id"], row["at"].astimezone(timezone.utc)) for row in rows)
    return sorted(found, key=lambda kept: (kept.cut_id, kept.at))


def removal_writer(lake: Lake, table: str) -> str:
    """The writer of removals in the table's own log; its version is the last removed batch."""
    return f"{lake.paths.app_id(table)}:removed"


def removed_batches(lake: Lake, table: str) -> tuple[int, int]:
    """The last batch that the table may lack, and the kept cut that has its changes; (0, 0) if it has all batches."""
    rows = read_rows(lake, KEPT_CUTS, ("kind", "=", table), columns=["batch_id", "cut_id"])
    newest = max(rows, key=lambda row: (row["batch_id"], row["cut_id"]), default={"batch_id": 0, "cut_id": 0})
    return newest["batch_id"], newest["cut_id"]
