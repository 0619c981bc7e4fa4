from __future__ import annotations

from pathlib import Path

import pytest
from delta.tables import DeltaTable
from pyspark.sql import SparkSession

from cdc_pipeline.mysql.model.table import TableName
from cdc_pipeline_tests.support.lakes.stories import KEYLESS, TYPES, create, delete, put
from cdc_pipeline_tests.support.lakes.stream import Stream
from cdc_pipeline_tests.support.lakes.ways import MERGED
from cdc_pipeline_tests.support.messages import row

_UNSEEN = (("INSERT", 5, "1"), ("DELETE", 16, "2"))


def test_a_keyless_table_is_merged_only_if_rows_are_deleted(spark: SparkSession, tmp_path: Path, way: str) -> None:
    """Other rows are appended, equal ones to rows of the mirror and of the cut too. A small mirror is always rewritten."""
    stream = Stream(spark, tmp_path)
    stream.write_slice(2, create("bag", 1, KEYLESS), put("bag", 2, "1", "a"))
    stream.run()
    stream.write_slice(10, *(put("bag", 5, "1", "a") for _ in range(2)), put("bag", 5, "2", "b"))
    stream.run()
    assert stream.rows("bag") == [*[(1, "a")] * 3, (2, "b")]
    last = stream.cuts()[-1]
    assert (last["changes"], last["mirrors"][0]["rows"]) == (3, 4)
    stream.write_slice(20, put("bag", 14, "3", "c"), delete("bag", 15, "1", "a"))
    stream.run()
    assert stream.rows("bag") == [*[(1, "a")] * 2, (2, "b"), (3, "c")]
    history = DeltaTable.forPath(spark, stream.paths.mirror(TableName("db", "bag"))).history()
    found = [entry["operation"] for entry in history.orderBy("version").collect()]
    last_one = "MERGE" if way == MERGED else "WRITE"
    assert [name for name in found if name in ("WRITE", "MERGE")] == ["WRITE", "WRITE", last_one]


@pytest.mark.usefixtures("way")
def test_a_row_that_a_keyless_table_does_not_have_is_a_gap(spark: SparkSession, tmp_path: Path) -> None:
    """A change before it is missing. A table whose start is not known has its gap already."""
    stream = Stream(spark, tmp_path)
    stream.write_slice(2, *(create(name, 1, KEYLESS) for name in ("empty", "few", "whole")))
    unseen = [(row(kind, "unseen", step, {"id": id_}, types=TYPES, key=[]), 1) for kind, step, id_ in _UNSEEN]
    stream.write_slice(10, *(put(name, 5, "1", "a") for name in ("few", "whole")), unseen[0])
    stream.run()
    stream.write_slice(20, *(delete("few", 15, "1", "a") for _ in range(3)), delete("empty", 15, "1", "a"))
    stream.write_slice(21, delete("whole", 16, "1", "a"), unseen[1])
    stream.run()
    gaps = {mirror["table"]: mirror["gaps"] for mirror in stream.cuts()[-1]["mirrors"]}
    missing = {table: [gap[:9] for gap in found if "does not have" in gap] for table, found in gaps.items()}
    assert missing == {"empty": ["1 row(s) "], "few": ["2 row(s) "], "whole": [], "unseen": []}
