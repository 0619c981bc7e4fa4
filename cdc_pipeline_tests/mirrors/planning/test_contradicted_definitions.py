"""Messages that contradict the definition of their table, because a statement did not arrive. Without Spark."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cdc_pipeline.dialects.message_types import MessageTypes
from cdc_pipeline.gaps import GapKind
from cdc_pipeline.mirrors.changes.row_groups import RowGroup
from cdc_pipeline.mirrors.planning.plan_draft import PlanDraft
from cdc_pipeline.mirrors.planning.planner import Planner
from cdc_pipeline.mirrors.settings.cut_settings import CutSettings
from cdc_pipeline.mysql.model.table import TableName
from cdc_pipeline_tests.support.plans.by_hand import ddl_event

_T = TableName("db", "t")


def _group(segment: int, **fields: object) -> RowGroup:
    """Rows of one segment, by TiCDC unless `fields` says otherwise."""
    group = RowGroup(_T, segment, ("id", "K"), ("id",), 1, "ticdc", True, (1, "t", 0, segment), is_insert=True)
    return replace(group, **fields)  # type: ignore[arg-type]


def _gaps(definition: str, *statements: str, groups: tuple[RowGroup, ...]) -> list[str]:
    events = [ddl_event(place, sql) for place, sql in enumerate((f"CREATE TABLE t ({definition})", *statements), 1)]
    draft = PlanDraft(groups, {}.get, frozenset(), 1, CutSettings("UTC", {"db.t": ("id",)}))
    Planner(draft).plan(events)
    state = draft.state(_T)
    assert state is not None
    kinds = GapKind.KEYS_DIFFER, GapKind.CONTRADICTORY_TYPES
    return [f"{gap.kind.name} {gap}" for gap in state.gaps if gap.kind in kinds]


def _keys(*keys: str, **fields: object) -> RowGroup:
    return _group(1, all_keys=frozenset(tuple(key.split()) for key in keys), **fields)


_OTHER_KEY = (
    "KEYS_DIFFER messages name {}, unlike the definition: a statement that changes the primary key did not arrive, and rows "
    "may be missing"
)
_NO_KEY, _KEY_K, _KEY_ID = map(_OTHER_KEY.format, ("no key", "the key (k)", "the key (id)"))


@pytest.mark.parametrize(
    ("definition", "group", "gaps"),
    [
        ("id INT PRIMARY KEY, k INT", _keys("id"), []),
        ("id INT PRIMARY KEY, k INT", _keys("ID"), []),
        ("id INT, k INT, PRIMARY KEY (k, id)", _keys("id K"), []),
        ("id INT PRIMARY KEY, k INT", _keys("id", "K", ""), [_NO_KEY, _KEY_K]),
        # without a primary key in the definition, a lost ADD PRIMARY KEY loses no row
        ("id INT NOT NULL, k INT, UNIQUE (id)", _keys(""), []),
        ("id INT, k INT", _keys("id"), []),
        # a column selector: the message names no key that rows could have, or only what rows have of it
        ("id INT PRIMARY KEY, k INT", _keys(), []),
        ("id INT, k INT, PRIMARY KEY (k, id)", _keys("id", columns=("id",)), []),
        # Canal's may be of another moment (canal-facts 15, 55)
        ("id INT PRIMARY KEY, k INT", _keys("", dialect="canal"), []),
    ],
)
def test_keys(definition: str, group: RowGroup, gaps: list[str]) -> None:
    assert _gaps(definition, groups=(group,)) == gaps


def test_keys_are_those_of_their_moment() -> None:
    change = "ALTER TABLE t DROP PRIMARY KEY, ADD PRIMARY KEY (k)"
    for segment, gaps in ((1, []), (2, [_KEY_ID])):
        groups = replace(_keys("id"), segment=segment), replace(_keys("k"), segment=2)
        assert _gaps("id INT PRIMARY KEY, k INT", change, groups=groups) == gaps


def _types(*types: str, **fields: object) -> RowGroup:
    return _group(1, sent_types=tuple(MessageTypes({"id": "int", "k": text}) for text in types), **fields)


_OTHER_TYPE = [
    "CONTRADICTORY_TYPES column k: messages name other labels or another kind of type than the definition: a statement that "
    "changes them did not arrive, and rows may have wrong values"
]


@pytest.mark.parametrize(
    ("definition", "group", "gaps"),
    [
        ("ENUM('a','b')", _types("enum('a','b')"), []),
        ("ENUM('a','b')", _types("enum"), []),
        ("ENUM('a','b')", _types("ENUM(\"a\", 'b ')"), []),
        ("ENUM('a','b')", _types("enum('x','a','b')"), _OTHER_TYPE),
        ("ENUM('a','b')", _types("enum('a','b')", "enum('b','a')"), _OTHER_TYPE),
        ("SET('x','y')", _types("set('w','x','y')", dialect="canal"), _OTHER_TYPE),
        ("SET('x','y')", _types("set('x','y')", dialect="canal"), []),
        # labels that encoders or servers may print in several ways
        ("ENUM('a\\\\b','é?')", _types("enum('a\\b','é?')"), []),
        ("ENUM('a?')", _types("enum('aé')"), []),
        # as MySQL 8 and MariaDB print definitions, and other services name types
        ("INT", _types("int(11)", "bigint unsigned", "decimal(65,30)", "tinyint", dialect="canal"), []),
        ("JSON", _types("longtext", "json", dialect="canal"), []),
        ("VARCHAR(9) CHARACTER SET binary", _types("varbinary(9)", dialect="canal"), []),
        ("INT", _types("number", "", dialect="canal"), []),
        ("TIMESTAMP", _types("timestamp(3)", dialect="canal"), []),
        ("POINT", _types("geometry", dialect="canal"), []),
        # a text that both types read, as other values
        ("INT", _types("varchar(20)", dialect="canal"), _OTHER_TYPE),
        ("VARCHAR(20)", _types("decimal(10,2)", dialect="canal"), _OTHER_TYPE),
        ("VARCHAR(20)", _types("enum('a')", dialect="canal"), _OTHER_TYPE),
        ("ENUM('a')", _types("varchar(20)", dialect="canal"), _OTHER_TYPE),
        ("TIMESTAMP", _types("datetime", dialect="canal"), _OTHER_TYPE),
        ("VARBINARY(9)", _types("varchar(9)", dialect="canal"), _OTHER_TYPE),
        ("INT", _types("STRING", dialect="dataworks"), []),
    ],
)
def test_types(definition: str, group: RowGroup, gaps: list[str]) -> None:
    assert _gaps(f"id INT PRIMARY KEY, k {definition}", groups=(group,)) == gaps


def test_types_are_those_of_their_moment() -> None:
    change = "ALTER TABLE t MODIFY k ENUM('b','a')"
    definition, group = "id INT PRIMARY KEY, k ENUM('a','b')", _types("enum('b','a')", dialect="canal")
    assert _gaps(definition, change, groups=(replace(group, segment=2),)) == []
    # Canal may know the definition of the server before it reads the statement
    assert _gaps(definition, change, groups=(group,)) == []
