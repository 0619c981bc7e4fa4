"""Whose messages with `id` 0 and without `_tidb` are: TiCDC's, or those of a service that writes Canal's format.

The messages of a topic decide together, and those of earlier batches count.
"""

from __future__ import annotations

import json

import pytest
from pyspark.sql import SparkSession

from cdc_pipeline.dialects.decode import decode
from cdc_pipeline.dialects.decoded_tables import decode_batches
from cdc_pipeline.dialects.senders import unnumbered_topics
from cdc_pipeline.lake.lake import Lake
from cdc_pipeline.lake.paths import LakePaths
from cdc_pipeline.sources.capture_files.source import ingest_new_files
from cdc_pipeline_tests.support.dialect_cases import raw
from cdc_pipeline_tests.support.messages import Topic, canal, canal_ddl, dataworks, row

_ONE: dict[str, str | None] = {"id": "1"}
_TWO: dict[str, str | None] = {"id": "2"}


def _row(step: int, ms: int, *rows: dict[str, str | None], **fields: object) -> str:
    """A row change with `id` 0."""
    message = json.loads(canal("INSERT", "t", step, list(rows) or [_ONE], batch=0))
    return json.dumps({**message, "es": message["es"] + ms, **fields})


def _ddl(step: int, ms: int) -> str:
    message = json.loads(canal_ddl("CREATE TABLE t (id INT)", step, table="t", kind="CREATE"))
    return json.dumps({**message, "es": message["es"] + ms, "id": 0})


_DATAWORKS = dataworks("INSERT", "t", 1, after={"id": 0}, types={"id": "LONG"}, sequence="5")
# topic → the messages of each batch, and the dialect of its rows and statements with `id` 0
_TOPICS: dict[str, tuple[list[list[str]], list[list[str]]]] = {
    "whole_seconds": ([[_row(1, 0), _row(2, 0)], [_row(3, 0)]], [["canal", "canal"], ["canal"]]),
    "statements_alone": ([[_ddl(1, 0)], [_ddl(2, 0)]], [["canal"], ["canal"]]),
    "several_rows": ([[_row(1, 0, _ONE, _TWO)], [_row(3, 0)]], [["canal"], ["canal"]]),
    "several_rows_and_ms": ([[_row(1, 7, _ONE, _TWO), _row(2, 8)], [_row(3, 9)]], [["canal", "canal"], ["canal"]]),
    "ms": ([[_row(1, 0), _row(2, 8)], [_row(3, 0)]], [["ticdc", "ticdc"], ["ticdc"]]),
    "ms_of_a_statement": ([[_ddl(1, 5)], [_row(3, 0)]], [["ticdc"], ["ticdc"]]),
    # one message in a thousand has a whole second: until another one arrives, nothing shows TiCDC
    "ms_later": ([[_row(1, 0)], [_row(2, 4), _row(3, 0)], [_row(4, 0)]], [["canal"], ["ticdc", "ticdc"], ["ticdc"]]),
    # TiCDC never writes two rows: the message is Canal's, and so are all later ones
    "several_rows_later": ([[_row(1, 3)], [_row(2, 4, _ONE, _TWO)], [_row(3, 5)]], [["ticdc"], ["canal"], ["canal"]]),
    "beside_other_dialects": (
        [[canal("INSERT", "t", 1, [_ONE]), _DATAWORKS, row("INSERT", "t", 2, _ONE), _row(3, 0)], [_row(4, 0)]],
        [["canal", "canal", "dataworks", "ticdc"], ["canal"]],
    ),
}


@pytest.fixture(scope="module")
def lake(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Lake:
    folder = tmp_path_factory.mktemp("senders")
    lake = Lake(spark, LakePaths(str(folder / "lake"), "shop"))
    topics = {name: Topic(name) for name in _TOPICS}
    for number in range(3):
        for name, (batches, _) in _TOPICS.items():
            for payload in batches[number] if number < len(batches) else ():
                topics[name].send(payload)
            topics[name].write(folder / "captures", f"{number}-{name}.jsonl")
        ingest_new_files(lake, str(folder / "captures"), "run")
        decode_batches(lake)
    return lake


def test_the_topic_shows_the_sender(lake: Lake) -> None:
    columns = ("topic", "batch_id", "offset", "dialect")
    decoded = lake.read("change_log").select(*columns).unionByName(lake.read("ddl_history").select(*columns))
    found: dict[str, list[list[str]]] = {name: [[] for _ in batches] for name, (batches, _) in _TOPICS.items()}
    for event in decoded.distinct().orderBy("offset").collect():
        found[event["topic"]][event["batch_id"] - 1].append(event["dialect"])
    wanted = {name: dialects for name, (_, dialects) in _TOPICS.items()}
    assert {name: [sorted(batch) for batch in batches] for name, batches in found.items()} == wanted


def test_messages_without_a_batch_number_have_none(lake: Lake) -> None:
    assert lake.read("change_log").where("message_id = 0").isEmpty()
    assert unnumbered_topics(lake) == {
        name for name, (batches, dialects) in _TOPICS.items() if any("canal" in batch for batch in dialects)
    }
    assert lake.read("dead_letters").isEmpty()


def test_a_declared_dialect_decides(spark: SparkSession) -> None:
    records = raw(spark, {"ms": _row(1, 7).encode(), "rows": _row(1, 0, _ONE, _TWO).encode()})
    assert [row["kind"] for row in decode(records, "canal").orderBy("offset").collect()] == ["row_change"] * 2
    assert [row["rule"] for row in decode(records, "ticdc").orderBy("offset").collect()] == [None, "data_has_one_row"]
