"""Topics whose messages have no time, and may have no table: those of Flink.

Flink's format `canal-json` writes `data` and `type` (flink-json, CanalJsonSerializationSchema); an UPDATE is a DELETE and an
INSERT. The Kafka sink of Flink CDC adds `old`, `database`, `table` and `pkNames`. Neither writes `isDdl`, `es` or `ts`.

A pipeline declares the table of such a topic. Its messages are then row changes of that table, and `es` is the timestamp of
the record. Without the declaration they are dead letters: one topic may have the rows of any table.
"""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from cdc_pipeline.contracts.canal_json import SENT

DECLARED = "declared_table"
"""Column added to raw records: database and table of the topic; null if none is declared."""
TABLE_RULE = "table_is_declared"
TABLE_EXPECTATION = (
    "isDdl and es; a topic with the changes of one table, as Flink writes it, is declared: "
    "source.tables: {topic: database.table}"
)


def with_tables(records: DataFrame, tables: Mapping[str, str]) -> DataFrame:
    """Adds `DECLARED` to raw records. `tables`: topic → `database.table`."""
    if not tables:
        return records
    names = {topic: F.array(*map(F.lit, table.split(".", 1))) for topic, table in tables.items()}
    pairs = F.create_map(*(part for topic, name in sorted(names.items()) for part in (F.lit(topic), name)))
    return records.withColumn(DECLARED, pairs[F.col("topic")])


def with_declared(fields: Mapping[str, Column]) -> dict[str, Column]:
    """The fields of a message, with those that it lacks if its topic has a table and it names no other."""
    names = {name: F.get(DECLARED, F.lit(index)) for index, name in enumerate(("database", "table"))}
    is_of_table = _has_no_times(fields)
    for name, declared in names.items():
        is_of_table &= F.coalesce(F.lower(fields[name]) == F.lower(declared), declared.isNotNull())
    missing = {"isDdl": F.lit(False), "es": F.unix_millis(SENT), **names}
    filled = {name: F.coalesce(fields[name], F.when(is_of_table, column)) for name, column in missing.items()}
    return {**fields, **filled}


def undeclared_table() -> Column:
    """`TABLE_RULE` for a parsed message of a topic whose table is not declared, else null."""
    fields = {name: F.col(name) for name in ("isDdl", "es", "data")}
    return F.when(_has_no_times(fields), F.lit(TABLE_RULE))


def _has_no_times(fields: Mapping[str, Column]) -> Column:
    return fields["isDdl"].isNull() & fields["es"].isNull() & fields["data"].isNotNull()
