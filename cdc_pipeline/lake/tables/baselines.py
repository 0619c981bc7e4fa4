"""`baselines` and `baseline_files`: the exports that were loaded. The rows of their tables are at `LakePaths.baseline`."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields
from datetime import datetime

import pyarrow as pa  # type: ignore[import-untyped]

from cdc_pipeline.lake.control_tables import append_rows, read_rows
from cdc_pipeline.lake.delta import Commit
from cdc_pipeline.lake.lake import Lake
from cdc_pipeline.mysql.model.table import TableName

BASELINES, BASELINE_FILES = "baselines", "baseline_files"
_PLACE = {"baseline": pa.string(), "database": pa.string(), "table": pa.string(), "number": pa.int32()}
_TABLES = pa.schema(
    {
        **_PLACE,
        "create": pa.string(),
        "tso": pa.int64(),
        "started": pa.int64(),
        "finished": pa.int64(),
        "time_zone": pa.string(),
        "rows": pa.int64(),
        "path": pa.string(),
        "loaded_at": pa.timestamp("us", "UTC"),
        "run_id": pa.string(),
    }
)
_FILES = pa.schema(
    {
        **_PLACE,
        "path": pa.string(),
        "size": pa.int64(),
        "sha256": pa.string(),
        "rows": pa.int64(),
    }
)


@dataclass(frozen=True)
class BaselineTable:
    """A table of an export whose rows are all in the lake."""

    baseline: str
    name: TableName
    number: int
    """Its place among the tables of the export, from 0."""
    create: str
    """Its CREATE TABLE."""
    tso: int | None
    """The moment of the export; None without TSOs."""
    started: int | None
    """Without a TSO: when the export began and ended, in ms since 1970 by upstream's clock."""
    finished: int | None
    time_zone: str | None
    """In which its TIMESTAMPs are printed; None: in that of the pipeline."""
    rows: int
    path: str
    """Of the export, or the address of the server that was read."""

    @property
    def has_exact_floats(self) -> bool:
        """Whether its FLOATs have all digits. Programs that export print six."""
        return self.path.startswith("jdbc:")


@dataclass(frozen=True)
class BaselineFile:
    """A file with rows of a table. `number`: that in the rows' `_partition`, from 0."""

    name: TableName
    number: int
    path: str
    """Relative to the export."""
    size: int
    sha256: str
    rows: int


def append_baseline(
    lake: Lake, table: BaselineTable, files: Iterable[BaselineFile], loaded_at: datetime, run_id: str
) -> None:
    """Appends a table whose rows are loaded, with its files. A second time changes nothing."""
    name, note = table.name, {"run_id": run_id}
    writer = f"{lake.paths.app_id(BASELINES)}:{table.baseline}:{name}"
    place = {"baseline": table.baseline, "database": name.database, "table": name.table}
    rows = [{**vars(file), **place} for file in files]
    if rows:
        append_rows(lake, BASELINE_FILES, pa.Table.from_pylist(rows, _FILES), Commit(writer, 1, note))
    row = {**vars(table), **place, "loaded_at": loaded_at, "run_id": run_id}
    append_rows(lake, BASELINES, pa.Table.from_pylist([row], _TABLES), Commit(writer, 1, note))


def baseline_tables(lake: Lake, baseline: str) -> list[BaselineTable]:
    """The loaded tables of a baseline, in the order of the export."""
    found = [
        BaselineTable(
            row["baseline"],
            TableName(row["database"], row["table"]),
            *(row[field.name] for field in fields(BaselineTable)[2:]),
        )
        for row in read_rows(lake, BASELINES, ("baseline", "=", baseline))
    ]
    return sorted(found, key=lambda table: table.number)
