"""`verifications`: how many row changes of each table found the row that they say was there."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any, TypeAlias

import pyarrow as pa  # type: ignore[import-untyped]

from cdc_pipeline.lake.control_tables import append_rows, read_rows
from cdc_pipeline.lake.delta import Commit
from cdc_pipeline.lake.lake import Lake

VERIFICATIONS = "verifications"
_SCHEMA = pa.schema(
    {
        # up to this cut; a row without a mirror says that all were looked at
        "cut_id": pa.int64(),
        "mirror_id": pa.string(),
        "database": pa.string(),
        "table": pa.string(),
        # new row changes since the verification before, those that proved their row, and those that contradict it
        "changes": pa.int64(),
        "proved": pa.int64(),
        "contradicted": pa.int64(),
        # why changes prove nothing; NULL if all could
        "reason": pa.string(),
        "at": pa.timestamp("us", "UTC"),
        "run_id": pa.string(),
    }
)


@dataclass(frozen=True)
class Verified:
    """What the row changes of one table up to a cut have proved, since the table was last verified or in total."""

    mirror_id: str
    database: str
    table: str
    changes: int
    proved: int = 0
    contradicted: int = 0
    reason: str | None = None


Rows: TypeAlias = "Sequence[Mapping[str, Any]]"


def append_verified(lake: Lake, cut_id: int, run_id: str, tables: Iterable[Verified]) -> Rows:
    """Appends what the changes up to the cut have proved, and returns these rows. A second time it changes nothing."""
    own = {"cut_id": cut_id, "run_id": run_id, "at": datetime.now(timezone.utc)}
    rows = pa.Table.from_pylist([own, *({**own, **vars(one)} for one in tables)], _SCHEMA)
    commit = Commit(lake.paths.app_id(VERIFICATIONS), cut_id, {"run_id": run_id, "cut": cut_id})
    append_rows(lake, VERIFICATIONS, rows, commit)
    found: Rows = rows.to_pylist()
    return found


def read_verifications(lake: Lake) -> Rows:
    """The rows of the table, for the functions below. Each call takes requests to the store."""
    return read_rows(lake, VERIFICATIONS)


def last_verified_cut(rows: Rows) -> int:
    """The newest cut up to which changes were verified; 0 if there is none."""
    return max((row["cut_id"] for row in rows), default=0)


def last_verification(rows: Rows) -> datetime | None:
    """When `append_verified` was last called."""
    # Spark's times are local
    return max((row["at"].astimezone(timezone.utc) for row in rows), default=None)


def verified_totals(rows: Rows) -> dict[str, Verified]:
    """Mirror id → the sums, with the newest reason."""
    found: dict[str, Verified] = {}
    for row in sorted(rows, key=lambda row: row["cut_id"]):
        if row["mirror_id"] is None:
            continue
        before = found.get(row["mirror_id"], Verified(row["mirror_id"], row["database"], row["table"], 0))
        found[row["mirror_id"]] = Verified(
            row["mirror_id"],
            row["database"],
            row["table"],
            before.changes + row["changes"],
            before.proved + row["proved"],
            before.contradicted + row["contradicted"],
            row["reason"],
        )
    return found
