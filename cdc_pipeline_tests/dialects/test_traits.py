"""Mirrors test traits of a dialect, never its name."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest
from pyspark.sql import Row

import cdc_pipeline
from cdc_pipeline.contracts.tables import ChangeRow
from cdc_pipeline.dialects.traits import (
    BY_NAME,
    DIALECTS,
    Trait,
    dialect_has_trait,
    dialects_with_trait,
    statement_quotings,
    trait_sql,
)
from cdc_pipeline.mysql.ddl.tokens import Quoting

_PACKAGE = Path(cdc_pipeline.__file__).parent
_DOCUMENT = Path(__file__).parents[2] / "docs" / "dialects.md"
_TRAITS: dict[str, set[Trait]] = {
    "canal": {
        Trait.IN_LOG_ORDER,
        Trait.ABSENT_IS_DEFAULT,
        Trait.NAMES_TYPES_TWICE,
        Trait.DOUBLES_BACK_TICKS,
        Trait.READS_TEXT_AS_UTF8,
        Trait.OMITS_NULLS,
    },
    "dataworks": {Trait.NUMBERS_CHANGES, Trait.LOADS_FIRST, Trait.NEEDS_TYPES},
    "ticdc": {Trait.FROM_TIDB, Trait.RESTARTS_FROM_CHECKPOINT, Trait.MARKS_LOST_BYTES},
}
_IN_QUOTES = re.compile(r"['\"`]({})['\"`]".format("|".join(_TRAITS)))
_OF_DIALECTS = {f"cdc_pipeline.dialects.{name}" for name in _TRAITS}


def test_traits_of_each_dialect() -> None:
    assert {dialect.name: set(dialect.traits) for dialect in DIALECTS} == _TRAITS


def test_each_trait_is_had_by_some_dialect() -> None:
    assert [trait for trait in Trait if not dialects_with_trait(trait)] == []


def test_dialects_are_those_of_the_contract() -> None:
    found = ChangeRow.to_schema().columns["dialect"].checks[0].statistics["allowed_values"]
    assert set(found) == set(BY_NAME)


def test_a_name_that_is_of_no_dialect_has_no_trait() -> None:
    assert not any(dialect_has_trait("", trait) for trait in Trait)


def test_trait_in_sql() -> None:
    assert trait_sql(Trait.IN_LOG_ORDER) == "dialect = 'canal'"


@pytest.mark.parametrize(
    ("dialect", "exact_ts", "ts", "quotings"),
    [
        ("canal", False, 1, (Quoting.MYSQL,)),
        ("dataworks", False, 1, (Quoting.MYSQL,)),
        ("", False, None, (Quoting.MYSQL,)),
        ("ticdc", True, 1, (Quoting.TIDB,)),  # with `_tidb`
        ("ticdc", True, None, (Quoting.TIDB,)),  # a schema file of the storage sink
        ("ticdc", False, 1, (Quoting.TIDB,)),  # v5.4 and later
        ("ticdc", False, None, (Quoting.TIDB, Quoting.MYSQL)),
    ],
)
def test_who_may_have_written_a_statement(
    dialect: str, exact_ts: bool, ts: int | None, quotings: tuple[Quoting, ...]
) -> None:
    assert statement_quotings(Row(dialect=dialect, exact_ts=exact_ts, ts=ts)) == quotings


def test_trait_of_several_dialects_in_sql(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cdc_pipeline.dialects.traits.dialects_with_trait", lambda _: ("canal", "ticdc"))
    assert trait_sql(Trait.IN_LOG_ORDER) == "dialect IN ('canal', 'ticdc')"


def test_traits_are_documented_as_they_are() -> None:
    rows = [
        f"| `{trait.name.lower()}` | {trait.value} | {', '.join(f'`{name}`' for name in dialects_with_trait(trait))} |"
        for trait in Trait
    ]
    section = _DOCUMENT.read_text(encoding="utf-8").split("\n## Traits\n")[1].split("\n## ")[0]
    assert [line for line in section.splitlines() if line.startswith("|")][2:] == rows


def test_mirrors_know_no_dialect_by_name() -> None:
    rooms = ("mirrors", "sources", "checks", "lake", "mysql", "assets")
    files = sorted(file for room in rooms for file in (_PACKAGE / room).rglob("*.py"))
    assert len(files) > 50
    found = {
        str(file.relative_to(_PACKAGE)): names for file in files if (names := _named(file.read_text(encoding="utf-8")))
    }
    assert found == {}


@pytest.mark.parametrize(
    ("source", "named"),
    [
        ("from cdc_pipeline.dialects.canal import CANAL", ["cdc_pipeline.dialects.canal"]),
        ("from cdc_pipeline.dialects.traits import BY_NAME, DIALECTS", ["BY_NAME", "DIALECTS"]),
        ("from cdc_pipeline.dialects import dataworks as d", ["cdc_pipeline.dialects.dataworks"]),
        ("import cdc_pipeline.dialects.ticdc", ["cdc_pipeline.dialects.ticdc"]),
        ("from cdc_pipeline.dialects.decode import DIALECTS", ["DIALECTS"]),
        ("from cdc_pipeline.dialects.traits import Trait, has_trait", []),
        ("same = event.dialect == 'ticdc'", ["ticdc"]),
        ("SQL = \"dialect = 'canal'\"", ["canal"]),
        ("SQL = f\"{column} = 'canal'\"", ["canal"]),
        ("def f():\n    'By \"canal\" alone.'\n    return 'Canal sends again'", []),
        ("X = 1\n'As of `canal`.'", []),
    ],
)
def test_a_dialect_that_is_named_is_found(source: str, named: list[str]) -> None:
    assert _named(source) == named


def _named(source: str) -> list[str]:
    """References to a dialect: imported modules and values, and string literals, without docstrings."""
    tree = ast.parse(source)
    words = {
        id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    }
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found += [name.name for name in node.names if name.name in _OF_DIALECTS]
        elif isinstance(node, ast.ImportFrom):
            whole = [f"{node.module}.{name.name}" for name in node.names]
            found += [name for name in (node.module, *whole) if name in _OF_DIALECTS]
            found += [name.name for name in node.names if name.name in ("BY_NAME", "DIALECTS")]
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in words:
            found += [node.value] if node.value in _TRAITS else _IN_QUOTES.findall(node.value)
    return found
