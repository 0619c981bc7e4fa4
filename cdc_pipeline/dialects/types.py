"""The column types that messages name, read from one message of each group of rows that needs them.

They are the same for all messages of a table until its definition changes, so that parsing them with every message
would be waste (DESIGN §6). `Wire` is how a value travels where the column's MySQL type alone does not say it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from cdc_pipeline.contracts.dataworks import ROW_ID
from cdc_pipeline.dialects.claims import messages as whole_messages
from cdc_pipeline.dialects.dataworks import NAME as DATAWORKS
from cdc_pipeline.dialects.packed import may_be_packed, opened
from cdc_pipeline.dialects.places import PLACE, records_at
from cdc_pipeline.dialects.ticdc import NAME as TICDC
from cdc_pipeline.json_text import OPTIONS
from cdc_pipeline.schemas.wire import JSON_BYTES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from pyspark.sql import Column, DataFrame, Row

    from cdc_pipeline.dialects.places import Place

_BLOB = 2004
_MESSAGE = (
    "ts BIGINT, mysqlType MAP<STRING, STRING>, sqlType MAP<STRING, INT>, _tidb STRUCT<claimCheckLocation: STRING>, "
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


# integer type → one that holds its signed and its unsigned values, and the Java type by which TiCDC before v5.4, which never
# says `unsigned`, sends it whatever its sign
_OF_ANY_SIGN = {
    "tinyint": ("smallint", 5),
    "smallint": ("int", 4),
    "mediumint": ("int", None),
    "int": ("bigint", -5),
    "bigint": ("decimal(20,0)", 3),
}


@dataclass(frozen=True)
class MessageTypes:
    """Of one message: column → MySQL type in words, and column → `Wire`, for those that have one."""

    mysql_types: dict[str, str] = field(default_factory=dict)
    wires: dict[str, str] = field(default_factory=dict)


def message_types(
    raw: DataFrame, places: Mapping[Place, str], claims: Callable[[], DataFrame | None] = lambda: None
) -> dict[Place, MessageTypes]:
    """The types that the records at `places` name, each of its dialect; none for a record whose types cannot be read.

    `raw` is `raw_topic_snapshot`; `claims` gives the table of that name, for records that refer to it. Only names and types
    of columns are collected, no values.
    """
    messages = _parsed(raw, places, F.col("value"))
    if packed := [place for place, (_, packed) in messages.items() if packed]:
        messages |= _parsed(raw, packed, opened(F.col("value")))
    referring = [
        place
        for place, (message, _) in messages.items()
        if message is not None and message["_tidb"] is not None and message["_tidb"]["claimCheckLocation"] is not None
    ]
    if referring and (kept := claims()) is not None:
        messages |= _parsed(whole_messages(kept), referring, F.col("message"))
    found = {}
    for place, (message, _) in messages.items():
        if message is None:
            continue
        if places[place] == DATAWORKS:
            found[place] = _of_dataworks(message["schema"])
        elif places[place] == TICDC:
            found[place] = _of_ticdc(message["mysqlType"] or {}, message["sqlType"] or {}, message["ts"])
        else:
            found[place] = _of_canal(message["mysqlType"] or {}, message["sqlType"] or {})
    return found


def _parsed(records: DataFrame, places: Iterable[Place], value: Column) -> dict[Place, tuple[Row | None, bool]]:
    """What the records at these places say in `value`, each with whether that may be compressed."""
    if not (asked := list(places)):
        return {}
    rows = (
        records_at(records, asked)
        .withColumn("_value", value)
        .select(
            F.struct(*PLACE).alias("place"),
            F.from_json(F.col("_value").cast("string"), _MESSAGE, OPTIONS).alias("message"),
            may_be_packed(F.col("_value")).alias("packed"),
        )
        .collect()
    )
    return {tuple(row["place"]): (row["message"], row["packed"]) for row in rows}


def _of_dataworks(schema: object) -> MessageTypes:
    columns = (schema["dataColumn"] if schema is not None else None) or []  # type: ignore[index]
    named = {
        column["name"]: column["type"]
        for column in columns
        if column is not None and column["name"] is not None and column["name"] != ROW_ID
    }
    wires = {name: wire for name, wire in named.items() if wire is not None}
    return MessageTypes({name: _DATAWORKS.get(wires.get(name, ""), "") for name in named}, wires)


def _of_ticdc(mysql_types: dict[str, str | None], sql_types: dict[str, int | None], ts: int | None) -> MessageTypes:
    """Types that hold all that the columns may have, where the message does not say it: in default mode how many bits a BIT
    has, before v5.4 the sign of an integer. Such a message has `ts` 0, or Java types that no signed integer has later."""
    types = {name: text or "" for name, text in mysql_types.items()}
    integers = {
        name: _OF_ANY_SIGN[word] for name, text in types.items() if (word := text.strip().lower()) in _OF_ANY_SIGN
    }
    if ts == 0 or any(code is not None and sql_types.get(name) == code for name, (_, code) in integers.items()):
        types |= {name: wide for name, (wide, _) in integers.items()}
    return MessageTypes({name: "bit(64)" if text.strip().lower() == "bit" else text for name, text in types.items()})


def _of_canal(mysql_types: dict[str, str | None], sql_types: dict[str, int | None]) -> MessageTypes:
    types = {name: text or "" for name, text in mysql_types.items()}
    wires = {
        name: JSON_BYTES
        for name, text in types.items()
        if text.strip().lower() == "json" and sql_types.get(name) == _BLOB
    }
    return MessageTypes(types, wires)
