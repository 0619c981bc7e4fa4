"""What held statements would remove, and how many changes wait for them."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa  # type: ignore[import-untyped]
import pytest
from deltalake import write_deltalake

from cdc_pipeline.lake.lake import Lake
from cdc_pipeline.lake.paths import LakePaths
from cdc_pipeline.mirrors.changes.progress import PublishedCut
from cdc_pipeline.mirrors.operations.dry_run import pending_statements
from cdc_pipeline.mirrors.settings.ddl_policy import HeldTable
from cdc_pipeline.mirrors.settings.selection import ALL_TABLES
from cdc_pipeline.mysql.model.table import TableName
from cdc_pipeline.positions import Position

_PLACE = {"topic": "t", "partition": 0, "offset": 7}
_TIMES = {"commit_ts": 9 << 18, "exact_ts": True, "es": 9, "ts": 9, "at": 9 << 18}


@pytest.mark.parametrize(
    ("sql", "effect", "loss"),
    [
        (
            "ALTER TABLE people DROP COLUMN seen",
            "ALTER TABLE crm.people: DROP COLUMN seen",
            "the values of column seen in 1,050 rows of crm.people",
        ),
        (
            "ALTER TABLE people DROP COLUMN seen, ADD COLUMN b INT, DROP a, COMMENT 'x'",
            "ALTER TABLE crm.people: DROP COLUMN seen, ADD COLUMN b int, DROP COLUMN a, no effect: COMMENT 'x'",
            "the values of column seen in 1,050 rows of crm.people; the values of column a in 1,050 rows of crm.people",
        ),
        ("TRUNCATE TABLE people", "TRUNCATE TABLE crm.people", "all 1,050 rows of crm.people"),
        (
            "DROP TABLE people, unknown",
            "DROP TABLE crm.people; DROP TABLE crm.unknown",
            "all 1,050 rows of crm.people",
        ),
        (
            "ALTER TABLE people TRUNCATE PARTITION p0, p1",
            "ALTER TABLE crm.people: TRUNCATE PARTITION p0, p1",
            "those of 1,050 rows of crm.people that are in the partitions p0, p1",
        ),
        (
            "ALTER TABLE people TRUNCATE PARTITION ALL",
            "ALTER TABLE crm.people: TRUNCATE PARTITION",
            "those of 1,050 rows of crm.people that are in all partitions",
        ),
        ("RENAME TABLE people TO persons", "RENAME TABLE crm.people to crm.persons", ""),
        ("ALTER TABLE people DISCARD TABLESPACE", "ALTER TABLE crm.people: not applied yet: DISCARD TABLESPACE", ""),
        ("ALTER TABLE unknown DROP COLUMN seen", "ALTER TABLE crm.unknown: DROP COLUMN seen", ""),
    ],
)
def test_effects_and_losses(sql: str, effect: str, loss: str, tmp_path: Path) -> None:
    lake = Lake(None, LakePaths(str(tmp_path), "p"))  # type: ignore[arg-type]
    statement = {**_PLACE, **_TIMES, "kind": "ddl", "type": "ALTER", "dialect": "ticdc", "message_id": 0}
    table = "unknown" if "TABLE unknown" in sql else "people"
    held = {**statement, "database": "crm", "table": table, "sql": sql, "status": "held", "effect": "waits"}
    applied = {**held, "offset": 6, "status": "applied", "effect": "approved by run 1"}
    write_deltalake(lake.paths.table("ddl_history"), pa.Table.from_pylist([held, applied]))
    people, position = TableName("crm", "people"), Position("t", 0, 7)
    tables = HeldTable(people, position, 9, 10), HeldTable(TableName("crm", "other"), Position("t", 0, 8), 9, 5)
    cut = PublishedCut(3, 9 << 18, 1, ({"database": "crm", "table": "people", "rows": 1050},), 15, tables)
    (found,) = pending_statements(lake, cut, ALL_TABLES)
    assert found.status == "held"
    assert (found.position, found.sql, found.effect, found.loss, found.waiting) == (position, sql, effect, loss, 10)
