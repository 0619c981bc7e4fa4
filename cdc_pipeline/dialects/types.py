"""The column types that messages name, read from one message of each group of rows that needs them.

They are the same for all messages of a table until its definition changes, so that parsing them with every message
would be waste (DESIGN §6). `Wire` is how a value travels where the column's MySQL type alone does not say it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from cdc_pipeline.dialects.dataworks import NAME as DATAWORKS
from cdc_pipeline.dialects.dataworks import ROW_ID
from cdc_pipeline.json_text import OPTIONS
from cdc_pipeline.schemas.wire import JSON_BYTES

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import DataFrame

Place = tuple[int, str, int, int]
"""A record: batch, topic, partition, offset."""

_BLOB = 2004
_MESSAGE = (
    "mysqlType MAP<STRING, STRING>, sqlType MAP<STRING, INT>, "
    "`schema` STRUCT<dataColumn: ARRAY<STRUCT<name: STRING, type: STRING>>>"
)
# DataWorks' six types → the MySQL type that holds all their values
_DATAWORKS = {
    "BOOLEAN": "tinyint(1)",
    "LONG": "bigint",
    "DOUBLE": "double",
    "DATE": "timestamp(3)",
    "BYTES": "longblob",
    "STRING": "longtext",
}


@dataclass(frozen=True)
class MessageTypes:
    """Of one message: column → MySQL type in words, and column → `Wire`, for those that have one."""

    mysql_types: dict[str, str] = field(default_factory=dict)
    wires: dict[str, str] = field(default_factory=dict)


def message_types(raw: DataFrame, places: Mapping[Place, str]) -> dict[Place, MessageTypes]:
    """The types that the records at `places` name, each of its dialect; none for a record whose types cannot be read.

    `raw` is `raw_topic_snapshot`. Only names and types of columns are collected, no values.
    """
    if not places:
        return {}
    wanted = raw.sparkSession.createDataFrame(
        list(places), "batch_id BIGINT, topic STRING, `partition` INT, `offset` BIGINT"
    )
    batches = sorted({place[0] for place in places})
    rows = (
        raw.where(F.col("batch_id").isin(batches))
        .join(F.broadcast(wanted), ["batch_id", "topic", "partition", "offset"])
        .select(
            F.struct("batch_id", "topic", "partition", "offset").alias("place"),
            F.from_json(F.col("value").cast("string"), _MESSAGE, OPTIONS).alias("message"),
        )
        .collect()
    )
    found = {}
    for row in rows:
        place: Place = tuple(row["place"])
        message = row["message"]
        if message is None:
            continue
        if places[place] == DATAWORKS:
            found[place] = _of_dataworks(message["schema"])
        else:
            found[place] = _of_canal(message["mysqlType"] or {}, message["sqlType"] or {})
    return found


def _of_dataworks(schema: object) -> MessageTypes:
    columns = (schema["dataColumn"] if schema is not None else None) or []  # type: ignore[index]
    named = {
        column["name"]: column["type"]
        for column in columns
        if column is not None and column["name"] is not None and column["name"] != ROW_ID
    }
    wires = {name: wire for name, wire in named.items() if wire is not None}
    return MessageTypes({name: _DATAWORKS.get(wires.get(name, ""), "") for name in named}, wires)


def _of_canal(mysql_types: dict[str, str | None], sql_types: dict[str, int | None]) -> MessageTypes:
    types = {name: text or "" for name, text in mysql_types.items()}
    wires = {
        name: JSON_BYTES
        for name, text in types.items()
        if text.strip().lower() == "json" and sql_types.get(name) == _BLOB
    }
    return MessageTypes(types, wires)
