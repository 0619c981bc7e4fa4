"""Statements that spell names in any case mean the model's tables. No Spark: definitions only, without rows of mirrors."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cdc_pipeline.mirrors.model.ddl_events import DdlEvent, ddl_event
from cdc_pipeline.mirrors.planning.included_ddl import mirrored_event
from cdc_pipeline.mirrors.planning.plan_draft import PlanDraft
from cdc_pipeline.mirrors.planning.planner import Planner
from cdc_pipeline.mirrors.settings.cut_settings import CutSettings
from cdc_pipeline.mirrors.settings.selection import ALL_TABLES
from cdc_pipeline.mysql.model.change_names import folded
from cdc_pipeline.mysql.model.table import TableName
from cdc_pipeline_tests.histories.choices import Seeded
from cdc_pipeline_tests.histories.history import History, drawn_settings
from cdc_pipeline_tests.histories.message import Message
from cdc_pipeline_tests.histories.strategies import history_of_seed

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


@pytest.mark.parametrize("mode", ["extension", "default", "canal"])
def test_statements_in_any_case_give_the_tables_of_the_model(mode: str) -> None:
    respelled = 0
    for seed in _SEEDS:
        history = _history(seed, mode)
        draft = PlanDraft((), lambda name: None, frozenset(), 1, CutSettings("UTC"))
        events = [
            mirrored_event(_event(place, message), ALL_TABLES)
            for place, message in enumerate(history.messages, 1)
            if message.kind == "ddl"
        ]
        Planner(draft).plan(events)
        respelled += sum(name.table not in event.sql for event in events for name in event.names())
        truth = {folded(TableName(*name)): content for name, content in history.final_truth().items()}
        names = {name: draft.state(name) for name in draft.names()}
        assert names.keys() == truth.keys(), seed
        for name, state in names.items():
            assert state is not None
            assert mode == "canal" or str(state.name) in map(".".join, history.final_truth()), (seed, state.name)
            assert state.schema.column_names == tuple(column for column, _ in truth[name].columns), (seed, name)
            assert not [gap for gap in state.gaps if gap.kind.name == "DDL_NOT_APPLIED"], (seed, name, state.gaps)
    assert respelled > 10
