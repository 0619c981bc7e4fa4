"""Statements that spell names in any case mean the model's tables. No Spark: definitions only, without rows of mirrors."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING

import pytest

from cdc_pipeline.mirrors.model.ddl_events import DdlEvent, ddl_event
from cdc_pipeline.mirrors.model.object_names import ObjectNames, moved_names
from cdc_pipeline.mirrors.model.upstream_tables import RowTimes
from cdc_pipeline.mirrors.planning.plan_draft import PlanDraft
from cdc_pipeline.mirrors.planning.planner import Planner
from cdc_pipeline.mysql.model.change_names import folded
from cdc_pipeline.mysql.model.table import TableName
from cdc_pipeline_tests.histories.choices import Seeded
from cdc_pipeline_tests.histories.history import drawn_settings
from cdc_pipeline_tests.histories.strategies import history_of_seed

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cdc_pipeline_tests.histories.history import History
    from cdc_pipeline_tests.histories.message import Message

_SEEDS = range(40)


def _history(seed: int, mode: str) -> History:
    settings = drawn_settings(Seeded(seed), mode, seed=seed, complete=True)
    return history_of_seed(
        seed, transactions=15, mode=mode, settings=replace(settings, ddl=settings.ddl or 0.2, recased=True)
    )


def _event(place: int, message: Message) -> DdlEvent:
    """The event of a message, sent at `place`."""
    body = message.body
    row = {**body, "kind": "ddl", "dialect": "canal" if "gtid" in body else "ticdc", "topic": "t", "partition": 0}
    times = {
        "commit_ts": place << 18,
        "exact_ts": False,
        "message_id": 1,
        "ts": place,
        "at": place << 18,
        "offset": place,
    }
    return ddl_event({**row, **times})  # type: ignore[arg-type]


def _row_times(messages: Sequence[tuple[int, Message]]) -> dict[TableName, RowTimes]:
    found: dict[TableName, RowTimes] = {}
    for place, message in messages:
        if message.kind == "row":
            name = TableName(message.body["database"], message.body["table"])
            first, _ = found.get(name, (place << 18, 0))
            found[name] = RowTimes(first, place << 18)
    return found


def _plan_cut(
    draft: PlanDraft, messages: Sequence[tuple[int, Message]], earlier: Sequence[tuple[int, Message]]
) -> list[DdlEvent]:
    """Plans the statements of one cut. Returns them with the names of the tables that they mean."""
    events = [_event(place, message) for place, message in messages if message.kind == "ddl"]
    rows, all_rows = _row_times(messages), _row_times([*earlier, *messages])
    for old, new in moved_names(draft.names(), rows, events, lambda name: name in all_rows).items():
        state = draft.state(old)
        assert state is not None
        draft.rename(state, new)
    resolved = ObjectNames(draft.names(), lambda: rows).resolved(events)
    Planner(draft).plan(resolved)
    added = {
        folded(name): event.commit_ts for event in resolved for change in event.changes for name in change.names().added
    }
    typed = {folded(name) for name in draft.names() if folded(name) != name}
    # a table with rows has their name, unless it was created again after them
    assert not [name for name in rows.keys() & typed if rows[name].last > added.get(name, 0)]
    return resolved


@pytest.mark.parametrize("cuts", [1, 3])
@pytest.mark.parametrize("mode", ["extension", "default", "canal"])
def test_statements_in_any_case_give_the_tables_of_the_model(mode: str, cuts: int) -> None:
    respelled = 0
    for seed in _SEEDS:
        history = _history(seed, mode)
        draft = PlanDraft((), lambda name: None, frozenset(), 1, "UTC")
        messages = list(enumerate(history.messages, 1))
        bounds = [len(messages) * cut // cuts for cut in range(cuts + 1)]
        for start, end in pairwise(bounds):
            events = _plan_cut(draft, messages[start:end], messages[:start])
            respelled += sum(name.table not in event.sql for event in events for name in event.names())
        truth = {TableName(*name): content for name, content in history.final_truth().items()}
        names = {folded(name) if mode == "canal" else name: draft.state(name) for name in draft.names()}
        assert names.keys() == truth.keys(), seed
        for name, state in names.items():
            assert state is not None
            assert state.schema.column_names == tuple(column for column, _ in truth[name].columns), (seed, name)
            assert not [gap for gap in state.gaps if gap.kind.name == "DDL_NOT_APPLIED"], (seed, name, state.gaps)
    assert respelled > 10
