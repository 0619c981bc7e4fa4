"""Every example of the four format documents decodes as `expected.json` says, or is listed there as no message.

`documents/<document>/` has the examples byte for byte. `completed` fills in the parts that an example omits with `...`. Some
documents are stored as one line with comments inside: these are removed by their text, which the other documents have.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from cdc_pipeline.contracts.rules import model_rules
from cdc_pipeline.dialects.decode import COMPLETE_CONTRACTS, decode_with_reasons
from cdc_pipeline.dialects.shapes import complete_messages
from cdc_pipeline.mysql.ddl.column_types import parse_mysql_type
from cdc_pipeline.mysql.ddl.parser import parse_ddl
from cdc_pipeline.mysql.model.schema_changes import CreateTable
from cdc_pipeline.mysql.types.spark_types import parse_value
from cdc_pipeline_tests.support.dialect_cases import Columns, by_name, raw

_FOLDER = Path(__file__).parent / "documents"
_DOCUMENTS = sorted(path.name for path in _FOLDER.iterdir())
_EXPECTED = {name: json.loads((_FOLDER / name / "expected.json").read_text(encoding="utf-8")) for name in _DOCUMENTS}
_COMMENT = re.compile(r"//.*?$", re.MULTILINE)


def _examples(kind: str) -> dict[tuple[str, str], str]:
    """(document, example) → its text."""
    return {
        (path.parent.name, path.stem): path.read_text(encoding="utf-8") for path in sorted(_FOLDER.glob(f"*/*.{kind}"))
    }


_MESSAGES, _STATEMENTS = _examples("jsonc"), _examples("sql")
_COMMENTS = sorted(
    {found for text in _MESSAGES.values() if text.count("\n") > 1 for found in _COMMENT.findall(text)}, key=len
)


def _without_comments(text: str) -> str:
    if text.count("\n") > 1:
        return _COMMENT.sub("", text)
    for comment in reversed(_COMMENTS):
        text = text.replace(comment, "")
    return text


def _completed(text: str, how: dict[str, Any]) -> str:
    for part in how["fill"]:
        text = text.replace("...", part, 1)
    for before, after in how.get("replace", {}).items():
        text = text.replace(before, after)
    return re.sub(r",(\s*[}\]])", r"\1", text)


def _documented(name: tuple[str, str]) -> dict[str, Any]:
    document, example = name
    found: dict[str, Any] = _EXPECTED[document]["messages"][example]
    return found


def _values() -> dict[str, bytes | None]:
    found: dict[str, bytes | None] = {}
    for name, text in _MESSAGES.items():
        plain = _without_comments(text)
        found[f"{name}: as printed"] = plain.encode()
        if "completed" in _documented(name):
            found[f"{name}: completed"] = _completed(plain, _documented(name)["completed"]).encode()
    return found


@pytest.fixture(scope="module")
def rows(spark: SparkSession) -> Columns:
    values = _values()
    return by_name(decode_with_reasons(raw(spark, values)), values)


def test_every_example_has_what_it_must_become() -> None:
    documented = {(document, name) for document in _DOCUMENTS for name in _EXPECTED[document]["messages"]}
    assert documented == set(_MESSAGES)
    statements = {(document, name) for document in _DOCUMENTS for name in _EXPECTED[document]["statements"]}
    assert statements == set(_STATEMENTS)
    assert len(_MESSAGES) == 9 + 8 + 9 + 7


@pytest.mark.parametrize("name", _MESSAGES, ids=lambda name: " ".join(name))
def test_as_it_is_printed(name: tuple[str, str], rows: Columns) -> None:
    _is_as_wanted(rows[f"{name}: as printed"], _documented(name)["as_printed"])


@pytest.mark.parametrize(
    "name", [name for name in _MESSAGES if "completed" in _documented(name)], ids=lambda name: " ".join(name)
)
def test_completed(name: tuple[str, str], rows: Columns) -> None:
    wanted = {key: what for key, what in _documented(name)["completed"].items() if key not in ("fill", "replace")}
    _is_as_wanted(rows[f"{name}: completed"], wanted)


def _is_as_wanted(found: dict[str, Any], wanted: dict[str, Any]) -> None:
    shown = {key: found[key] for key in wanted}
    if "rows" in shown:
        shown["rows"] = [list(pair) for pair in shown["rows"]]
    assert shown == wanted
    assert (found["rule"] is None) == (found["kind"] != "dead_letter")


def test_the_rules_that_they_break_and_go_on(spark: SparkSession) -> None:
    """Rules of complete messages: types, fields that must be null, and all other warnings."""
    values = _values()
    names = list(values)
    frame = complete_messages(raw(spark, values)).persist()
    found: dict[str, set[str]] = {}
    for form, contract in COMPLETE_CONTRACTS.items():
        warned = F.array(
            *(F.when(~F.expr(rule.condition), F.lit(rule.name)) for rule in model_rules(contract) if rule.warn)
        )
        of_form = frame.where((F.col("form") == form) & F.col("unreadable").isNull())
        for row in of_form.select("offset", F.array_compact(warned).alias("warned")).collect():
            found[names[row["offset"]]] = set(row["warned"])
    frame.unpersist()
    wanted = {}
    for name in _MESSAGES:
        documented = _documented(name)
        good = [
            how for how in ("as_printed", "completed") if how in documented and documented[how]["kind"] != "dead_letter"
        ]
        wanted |= {f"{name}: {how.replace('_', ' ')}": set(documented["warnings"]) for how in good}
    assert {name: found.get(name) for name in wanted} == wanted


@pytest.mark.parametrize(
    "name", [name for name in _MESSAGES if "bytes" in _documented(name)], ids=lambda name: " ".join(name)
)
def test_the_bytes_of_the_example_of_binary_types(name: tuple[str, str], rows: Columns, spark: SparkSession) -> None:
    documented = _documented(name)["bytes"]
    (_, after), *_ = rows[f"{name}: completed"]["rows"]
    text = F.lit(after[documented["column"]])
    (found,) = spark.range(1).select(parse_value(text, parse_mysql_type("varbinary(16)"), "UTC").alias("v")).collect()
    assert list(found["v"]) == documented["values"]


@pytest.mark.parametrize("name", _STATEMENTS, ids=lambda name: " ".join(name))
def test_statements(name: tuple[str, str]) -> None:
    """The CREATE TABLE statements among the SQL of the documents."""
    documented = _EXPECTED[name[0]]["statements"][name[1]]
    (created,) = parse_ddl(_STATEMENTS[name].split(";")[0], "test", documented["table"])
    assert isinstance(created, CreateTable)
    assert (created.name.table, list(created.schema.primary_key)) == (documented["table"], documented["key"])
    assert {column.name: str(column.type) for column in created.schema.columns} == documented["columns"]
