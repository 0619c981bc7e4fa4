"""Statements that spell names in any case mean the model's tables. No Spark: definitions only, without rows of mirrors."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from cdc_pipeline.mirrors.changes.object_names import ObjectNames
from cdc_pipeline.mirrors.model.ddl_events import DdlEvent, ddl_event
from cdc_pipeline.mirrors.model.upstream_tables import RowTimes
from cdc_pipeline.mirrors.planning.plan_draft import PlanDraft
from cdc_pipeline.mirrors.planning.planner import Planner
from cdc_pipeline.mysql.model.change_names import folded
from cdc_pipeline.mysql.model.table import TableName
from cdc_pipeline_tests.histories.choices import Seeded
from cdc_pipeline_tests.histories.history import drawn_settings
from cdc_pipeline_tests.histories.strategies import history_of_seed

if TYPE_CHECKING:
    from cdc_pipeline_tests.histories.history import History
    from cdc_pipeline_tests.histories.message import Message

_SEEDS = range(40)


def _history(seed: int, mode: str) -> History:
    settings = drawn_settings(Seeded(seed), mode, seed=seed)
    return history_of_seed(
        seed, transactions=15, mode=mode, settings=replace(settings, ddl=settings.ddl or 0.2, recased=True)
    )


def _event(offset: int, message: Message) -> DdlEvent:
    body = message.body
    dialect = "canal" if "gtid" in body else "ticdc"
    row = {**body, "kind": "ddl", "dialect": dialect, "topic": "t", "partition": 0, "offset": offset}
    time = {"commit_ts": message.order << (18 if message.order < 1 << 50 else 0), "exact_ts": False, "message_id": 1}
    return ddl_event({**row, **time})  # type: ignore[arg-type]


def _row_times(history: History) -> dict[TableName, RowTimes]:
    found: dict[TableName, RowTimes] = {}
    for message in history.messages:
        if message.kind == "row":
            name = TableName(message.body["database"], message.body["table"])
            time = message.order << (18 if message.order < 1 << 50 else 0)
            first, last = found.get(name, (time, time))
            found[name] = RowTimes(min(first, time), max(last, time))
    return found


@pytest.mark.parametrize("mode", ["extension", "default", "canal"])
def test_statements_in_any_case_give_the_tables_of_the_model(mode: str) -> None:
    typed = 0
    for seed in _SEEDS:
        history = _history(seed, mode)
        statements = [message for message in history.messages if message.kind == "ddl"]
        events = [_event(offset, message) for offset, message in enumerate(statements)]
        rows = _row_times(history)
        resolved = ObjectNames(set(), lambda rows=rows: rows).resolved(events)  # type: ignore[misc]
        draft = PlanDraft((), lambda name: None, frozenset(), 1, "UTC")
        Planner(draft).plan(resolved)
        truth = {TableName(*name): content for name, content in history.final_truth().items()}
        typed += sum(
            change not in event.changes for event, one in zip(events, resolved, strict=True) for change in one.changes
        )
        names = {folded(name) if mode == "canal" else name: draft.state(name) for name in draft.names()}
        assert names.keys() == truth.keys(), seed
        for name, state in names.items():
            assert state is not None
            assert state.schema.column_names == tuple(column for column, _ in truth[name].columns), (seed, name)
            assert not [gap for gap in state.gaps if gap.kind.name == "DDL_NOT_APPLIED"], (seed, name, state.gaps)
        created = {
            folded(name): one.commit_ts for one in resolved for change in one.changes for name in change.names().added
        }
        with_rows = {name for name in rows.keys() & truth.keys() if rows[name].last > created[name]}
        assert with_rows <= set(draft.names()), seed
    assert typed > 10
