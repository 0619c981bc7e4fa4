"""Decoding cases: named values that are decoded as the records of one topic in one query."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import LongType, StructField, StructType

from cdc_pipeline.contracts.rules import model_rules, rejecting_rules
from cdc_pipeline.dialects.decode import EXPECTATIONS, DialectName, decode_with_reasons
from cdc_pipeline.dialects.dialect import Dialect
from cdc_pipeline.dialects.envelope import JSON_RULES, PATHS, parse_records
from cdc_pipeline.dialects.traits import DIALECTS
from cdc_pipeline.sources.records import RECORD

RAW = StructType([StructField("batch_id", LongType(), nullable=False), *RECORD.fields])
Good = dict[str, tuple["bytes | None", dict[str, Any]]]
"""Name → value and expected columns."""
Columns = dict[str, dict[str, Any]]
"""Name → decoded columns."""
Bad = dict[str, dict[str, bytes]]
"""Rule → name → a value that breaks it."""
_ALWAYS_KEPT = {"isDdl.equal_to"}
"""Rules that define a form: no message of the form can break them."""

_SIZED = {
    rule.name
    for dialect in DIALECTS
    for form in dialect.forms
    for rule in model_rules(form.contract)
    if rule.found is not None
}


def changed(message: str, **fields: Any) -> bytes:
    """The message with these fields in place of its own."""
    return json.dumps({**json.loads(message), **fields}, ensure_ascii=False).encode()


def without(message: str, *names: str) -> bytes:
    return json.dumps({name: field for name, field in json.loads(message).items() if name not in names}).encode()


def named(good: Good, bad: Bad) -> dict[str, bytes | None]:
    """All values, named `good: name` or `rule: name`."""
    return {f"good: {name}": value for name, (value, _) in good.items()} | {
        f"{rule}: {name}": value for rule, cases in bad.items() for name, value in cases.items()
    }


def raw_records(spark: SparkSession, topics: Mapping[str, Sequence[tuple[int, int, bytes | str | None]]]) -> DataFrame:
    """Records of batch 1. `topics`: topic → partition, offset and value of each record."""
    rows = []
    for topic, records in topics.items():
        for partition, offset, value in records:
            content = value.encode() if isinstance(value, str) else value
            payload = None if content is None else bytearray(content)
            rows.append((1, topic, partition, offset, None, None, payload, None, None))
    return spark.createDataFrame(rows, RAW)


def raw(spark: SparkSession, values: Mapping[str, bytes | None]) -> DataFrame:
    """The values as records of one partition, offsets in their order."""
    return raw_records(spark, {"topic": [(0, offset, value) for offset, value in enumerate(values.values())]})


def by_name(frame: DataFrame, values: Mapping[str, bytes | None]) -> Columns:
    """Name → columns of its one row, `rows` as pairs of before and after.

    Collects column names separately, because a Spark map loses its order in Python.
    """
    names = list(values)
    orders = {
        f"{image}_names": F.expr(f"transform(rows, row -> map_keys(row.{image}))") for image in ("before", "after")
    }
    found = {}
    for row in frame.drop("value").withColumns(orders).collect():
        name, columns = names[row["offset"]], row.asDict()
        assert name not in found
        pairs = None if row["rows"] is None else [(pair["before"], pair["after"]) for pair in row["rows"]]
        found[name] = {**columns, "rows": pairs}
    assert set(found) == set(names)
    return found


def explained_by_name(
    spark: SparkSession, values: Mapping[str, bytes | None], dialect: DialectName = "auto"
) -> Columns:
    return by_name(decode_with_reasons(raw(spark, values), dialect), values)


def says(reason: str, rule: str, value: bytes) -> bool:
    """Whether `reason` is correct for the value. For a rule with its own description only a number in it is checked."""
    expected, field = EXPECTATIONS[rule]
    if rule in _SIZED:
        return reason.startswith(f"expected: {expected}, found ") and re.search(r"found .*\d", reason) is not None
    return reason == _reason_of(expected, field, value)


def _reason_of(expected: str, field: str | None, value: bytes) -> str:
    if field is None:
        return f"expected: {expected}"
    found = json.loads(value)
    for part in PATHS.get(field, field).split("."):
        found = found.get(part) if found is not None else None
    return f"expected: {expected}, found {'null' if found is None else str(found)[:100]}"


def broken_by_form(spark: SparkSession, bad: Bad, dialect: Dialect) -> set[tuple[str, str]]:
    """(form, rule) of each case."""
    values = named({}, {rule: cases for rule, cases in bad.items() if rule not in JSON_RULES})
    names = list(values)
    forms = parse_records(raw(spark, values)).select("offset", dialect.form().alias("form")).collect()
    return {(row["form"], names[row["offset"]].split(": ")[0]) for row in forms}


def breakable(dialect: Dialect, identified_by: Mapping[str, Sequence[str]]) -> set[tuple[str, str]]:
    """(form, rule) of all rules that a message of the dialect can break.

    `identified_by`: form → fields that define the form, whose rules it cannot break.
    """
    return {
        (form.name, rule.name)
        for form in dialect.forms
        for rule in rejecting_rules(model_rules(form.contract))
        if rule.name not in _ALWAYS_KEPT and rule.field not in identified_by.get(form.name, ())
    }
