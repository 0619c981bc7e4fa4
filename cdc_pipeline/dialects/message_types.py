"""The column types that messages name, read from one message of each group of rows that needs them.

They are the same for all messages of a table until its definition changes, so that parsing them with every message
would be waste (DESIGN §6). `Wire` is how a value travels where the column's MySQL type alone does not say it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from cdc_pipeline.contracts.json_text import OPTIONS
from cdc_pipeline.dialects.claims import messages as whole_messages
from cdc_pipeline.dialects.dialect import MessageTypes
from cdc_pipeline.dialects.registry import BY_NAME
from cdc_pipeline.sources.compressed_values import may_be_packed, opened
from cdc_pipeline.sources.places import PLACE, records_at

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from pyspark.sql import Column, DataFrame, Row

    from cdc_pipeline.sources.places import Place

__all__ = ["MessageTypes", "message_types"]

# all that the types of any dialect are read from
_MESSAGE = (
    "ts BIGINT, mysqlType MAP<STRING, STRING>, sqlType MAP<STRING, INT>, _tidb STRUCT<claimCheckLocation: STRING>, "
    "`schema` STRUCT<dataColumn: ARRAY<STRUCT<name: STRING, type: STRING>>>"
)


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
    return {
        place: BY_NAME[places[place]].types(message) for place, (message, _) in messages.items() if message is not None
    }


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
