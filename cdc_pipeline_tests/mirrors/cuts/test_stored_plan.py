"""A stored plan is read back to an equal one, whatever it contains."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pydantic_core import PydanticSerializationError

from cdc_pipeline.errors import LakeError
from cdc_pipeline.gaps import Gap, GapKind
from cdc_pipeline.lake.tables.ddl_history import APPLIED
from cdc_pipeline.mirrors.changes.cut_rows import RowSelection
from cdc_pipeline.mirrors.changes.late_changes import Breach, LateChanges
from cdc_pipeline.mirrors.changes.window import Window
from cdc_pipeline.mirrors.cuts.cut_planning import row_sets
from cdc_pipeline.mirrors.cuts.stored_plan import PlannedCut, plan_from_json, plan_to_json
from cdc_pipeline.mirrors.model.computed_columns import ComputedColumn
from cdc_pipeline.mirrors.model.ddl_events import DdlEvent
from cdc_pipeline.mirrors.model.masks import HASH
from cdc_pipeline.mirrors.model.source_tables import SourceTable
from cdc_pipeline.mirrors.model.state import MirrorState
from cdc_pipeline.mirrors.model.steps import (
    ApplyRows,
    ChangeColumns,
    ChangeSourceRows,
    CreateMirror,
    DdlOutcome,
    DeleteRows,
    DropMirror,
    ExchangeRows,
    PurgeDeletedRows,
    PurgeSurplusRows,
    RenameMirror,
    Step,
    TruncateMirror,
    UpdateState,
)
from cdc_pipeline.mirrors.planning.planner import CutPlan
from cdc_pipeline.mirrors.settings.column_rules import ColumnRules, MaskSaltError
from cdc_pipeline.mirrors.settings.cut_settings import CutSettings
from cdc_pipeline.mirrors.settings.ddl_policy import DdlPolicy, HeldTable
from cdc_pipeline.mirrors.settings.selection import Route, TableSelection
from cdc_pipeline.mysql.ddl.statements import event_changes
from cdc_pipeline.mysql.expressions.partition_rows import SparkCondition
from cdc_pipeline.mysql.model.partitions import Partition, Partitioning
from cdc_pipeline.mysql.model.schema_changes import (
    AddColumn,
    AddForeignKey,
    AddIndex,
    AddPartitions,
    AddPrimaryKey,
    AddUniqueKey,
    AlterTable,
    ChangeColumn,
    CoalescePartition,
    ColumnPosition,
    CreateTable,
    CreateTableLike,
    DropColumn,
    DropDatabase,
    DropForeignKey,
    DropIndex,
    DropPartition,
    DropPrimaryKey,
    DropTable,
    ExchangePartition,
    NoRowEffect,
    NoTableEffect,
    NotSupported,
    NotSupportedClause,
    OfSourceTable,
    PartitionBy,
    RecoverDatabase,
    RecoverTable,
    RemovePartitioning,
    RenameColumn,
    RenameIndex,
    RenameTable,
    RenameTo,
    ReorganizePartition,
    SchemaChange,
    SetDefault,
    SetEngine,
    TruncatePartition,
    TruncateTable,
)
from cdc_pipeline.mysql.model.table import (
    Column,
    ColumnOrigin,
    Default,
    ForeignKey,
    MySqlType,
    PlainIndex,
    TableName,
    TableSchema,
    UniqueKey,
)
from cdc_pipeline.positions import Position
from cdc_pipeline_tests.support.masks import SALT
from cdc_pipeline_tests.support.messages import tso
from cdc_pipeline_tests.support.plans.mask_plans import CASES as MASK_CASES
from cdc_pipeline_tests.support.plans.mask_plans import RULES as MASKS
from cdc_pipeline_tests.support.plans.mask_plans import planned as mask_planned
from cdc_pipeline_tests.support.plans.shard_plans import CASES as SHARD_CASES
from cdc_pipeline_tests.support.plans.shard_plans import planned as shard_planned

_STORED = Path(__file__).parent / "stored_plan.json"
T, U = TableName("db", "t"), TableName("db", "ü `x")
_ID = Column("id", MySqlType("int", unsigned=True), nullable=False)
_V = Column("v", MySqlType("varchar", (20,), charset="utf8mb4"), default=Default("literal", "é'"))
_SCHEMA = TableSchema((_ID, _V), ("id",), (UniqueKey("u", ("v",)),), "utf8mb4")
_FOREIGN = ForeignKey("f", ("v",), U, ("w",), "ON DELETE CASCADE")
_ROWS = SparkCondition("`id` < 7", "`id` IS NULL")


def _event(sql: str, place: int = 7) -> DdlEvent:
    changes = event_changes("ddl", "db", "", sql)
    created = ((T, U),)
    return DdlEvent(
        "t", 0, place, "db", "", tso(place), True, tso(place) >> 18, None, sql, changes, "ticdc", 4, tso(place), created
    )


def _settings(columns: ColumnRules | None = None) -> CutSettings:
    selection = TableSelection(("db.*",), ("db.no",), (Route("db.a*", "m.{table}", merge=True),))
    policy = DdlPolicy("keep", (("db.h*", "hold"),))
    return CutSettings("Asia/Shanghai", {"db.k": ("a", "b")}, policy, selection, columns or ColumnRules())


def _planned(plan: CutPlan, columns: ColumnRules | None = None, *events: DdlEvent) -> PlannedCut:
    settings = _settings(columns)
    return PlannedCut(
        Window(7, tso(1), tso(9), 3, 5, {"t": tso(1)}, {"t": tso(9)}),
        settings,
        RowSelection(
            events,
            (((4, "t", 1, 5), 0, 2),),
            keyless=(U,),
        ),
        plan,
        tuple(row_sets(plan, settings)),
        {Position("t", 0, 9): DdlOutcome("duplicate", ["before"])},
        LateChanges(3, (Breach(T, 2, "t", 1, 5),)),
        ("db.a is included now",),
    )


def _all_steps() -> tuple[Step, ...]:
    state = MirrorState(
        T,
        "db.t@1",
        _SCHEMA,
        gaps=(Gap(GapKind.TABLES_DIFFER, "they differ", "v", example="db.x"),),
        kept_columns=("old",),
        soft_delete_key=("id",),
        computed=(ComputedColumn("d", "int", "id + 1"),),
    )
    masked = MirrorState(
        U, "db.u@1", _SCHEMA, True, masks=(("v", HASH),), mask_key="0123", source_tables=(SourceTable(U, _SCHEMA),)
    )
    added = Column("w", MySqlType("int"), default=Default("literal", "5"))
    origins = (ColumnOrigin(_ID, _ID), ColumnOrigin(added, None))
    return (
        CreateMirror(state),
        ApplyRows(state, T, (0, 2), 40, True, (("ticdc", {"v": "binary"}),), ("v",), ("g",), ("u",)),
        ChangeColumns(masked, state, origins, 12, (("v", "v__dropped_7"),)),
        UpdateState(masked),
        TruncateMirror(state),
        RenameMirror(masked, state, "7"),
        DropMirror(state, "7.0.3"),
        DeleteRows(state, _ROWS, "TRUNCATE p0"),
        ChangeSourceRows(masked, U, origins, ("v",), T, 5),
        ExchangeRows(state, masked, (("id", "ID"),), _ROWS, False, "EXCHANGE p0"),
        PurgeSurplusRows(state),
        PurgeDeletedRows(state),
    )


def _whole() -> PlannedCut:
    steps = _all_steps()
    held = HeldTable(T, Position("t", 0, 3), tso(2))
    outcome = DdlOutcome(APPLIED, ["altered"], [steps[0].state])
    plan = CutPlan(steps, {("t", 0, 7): outcome}, (held,), {T: 2})
    parts = Partitioning("range", "`id`", (), (Partition("p0", ("7",), ()),))
    added = Column("w", MySqlType("enum", members=("a", "b")), default=Default("literal", "b"))
    statements: tuple[tuple[SchemaChange, ...], ...] = (
        (CreateTable(T, replace(_SCHEMA, partitioning=parts, indexes=(PlainIndex("k", ("v",)),)), True),),
        (
            AlterTable(
                T,
                (
                    *(AddColumn(added, ColumnPosition(), True), DropColumn("v", True), RenameColumn("g", "h")),
                    *(
                        ChangeColumn("id", _ID, ColumnPosition("w")),
                        SetDefault("h", None),
                        AddPrimaryKey(("id",)),
                        DropPrimaryKey(),
                    ),
                    *(AddUniqueKey(UniqueKey("u", ("v",), False)), AddIndex(PlainIndex("", ("v",))), DropIndex("k")),
                    *(AddForeignKey(_FOREIGN), DropForeignKey("f"), SetEngine("MEMORY")),
                    *(RenameIndex("u", "w"), RenameTo(U), NoRowEffect("COMMENT"), NotSupportedClause("FROBNICATE")),
                    *(TruncatePartition(()), DropPartition(("p0",), True), ExchangePartition("p0", U, False)),
                    *(
                        AddPartitions((), 2),
                        ReorganizePartition(("p0",), ()),
                        CoalescePartition(1),
                    ),
                    *(PartitionBy(parts), RemovePartitioning()),
                ),
            ),
            RenameTable(T, U),
        ),
        (
            CreateTableLike(T, U),
            TruncateTable(T),
            DropTable(T, True),
        ),
        (DropDatabase("db"), RecoverTable(T, U), RecoverDatabase("db", "other"), NoTableEffect("VIEW")),
        (NotSupported("no", T, True, True), OfSourceTable(T, U, DropTable(U))),
    )
    events = tuple(replace(_event("", place), changes=found) for place, found in enumerate(statements))
    return _planned(plan, ColumnRules(("_commit_ts",), MASKS, SALT, ("db.s*",)), *events)


def test_the_golden_plan_is_read() -> None:
    """`stored_plan.json` is a plan of format 2. Later versions of this format still read it: new fields have defaults."""
    assert plan_from_json(_STORED.read_text(encoding="utf-8"), SALT) == _whole()


def test_stored_names_stay_the_same() -> None:
    """A later version may store more fields, but none under another name or in another form."""
    text = plan_to_json(_whole())
    missing = _missing(json.loads(_STORED.read_text(encoding="utf-8")), json.loads(text))
    assert missing == []
    assert SALT not in text


def _missing(stored: Any, now: Any, place: str = "") -> list[str]:
    """The paths at which the golden plan differs from the plan stored now."""
    if isinstance(stored, dict) and isinstance(now, dict):
        pairs = ((f"{place}.{name}", stored[name], now.get(name)) for name in stored)
    elif isinstance(stored, list) and isinstance(now, list) and len(stored) == len(now):
        pairs = ((f"{place}[{number}]", *both) for number, both in enumerate(zip(stored, now, strict=True)))
    else:
        return [] if stored == now else [f"{place}: {stored!r} is {now!r} now"]
    return [line for where, before, after in pairs for line in _missing(before, after, where)]


def test_a_plan_is_read_with_its_own_salt_only() -> None:
    with pytest.raises(MaskSaltError):
        plan_from_json(plan_to_json(_whole()), "another salt of the tests")


@pytest.mark.parametrize("name", SHARD_CASES)
def test_plans_of_merged_tables(name: str) -> None:
    _, plan = shard_planned(*SHARD_CASES[name][0])
    planned = _planned(plan)
    assert plan_from_json(plan_to_json(planned)) == planned


@pytest.mark.parametrize("name", MASK_CASES)
def test_plans_of_masked_tables(name: str) -> None:
    statements = MASK_CASES[name][0]
    _, plan = mask_planned(*statements)
    events = tuple(_event(sql, place) for place, sql in enumerate(statements, 1))
    planned = _planned(plan, ColumnRules(masks=MASKS, salt=SALT), *events)
    text = plan_to_json(planned)
    assert SALT not in text
    assert plan_from_json(text, SALT) == planned


@pytest.mark.parametrize(
    ("stored", "changed", "message"),
    [
        ('"is":"DropMirror"', '"is":"Another"', "Input tag 'Another' found"),
        ('"changes":40', '"changes":"40"', "Input should be a valid integer"),
        ('"if_exists":true', '"if_exists":1', "Input should be a valid boolean"),
        ('"commit_ms":12', '"commit_ms":12,"more":1', "Unexpected keyword argument"),
        ('"commit_ms":12', '"other":12', "Field required"),
        ('"state":', '"state":9', "it refers to a value that it does not contain"),
        ("}", "", "Invalid JSON"),
    ],
)
def test_other_texts_are_no_plans(stored: str, changed: str, message: str) -> None:
    text = plan_to_json(_whole())
    assert stored in text
    with pytest.raises(LakeError, match=f"stored JSON cannot be read: .*{message}") as error:
        plan_from_json(text.replace(stored, changed, 1), SALT)
    assert "varchar" not in str(error.value)


def test_values_of_other_types_are_not_stored() -> None:
    window = replace(_whole().window, cut_id="7")  # type: ignore[arg-type]
    with pytest.raises(PydanticSerializationError):
        plan_to_json(replace(_whole(), window=window))


def test_equal_definitions_are_stored_once() -> None:
    states = [
        MirrorState(TableName("db", f"t{number}"), f"{number}", TableSchema(_SCHEMA.columns)) for number in range(9)
    ]
    steps = tuple(CreateMirror(states[number % 3]) for number in range(9))
    planned = _planned(CutPlan(steps, {}))
    text = plan_to_json(planned)
    assert text.count("utf8mb4") == 1
    assert plan_from_json(text) == planned
