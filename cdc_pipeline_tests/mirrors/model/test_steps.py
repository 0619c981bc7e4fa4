"""Which folders a step reads, writes and moves."""

from __future__ import annotations

from dataclasses import fields
from types import SimpleNamespace
from typing import Any, get_args

import pytest

from cdc_pipeline.lake.paths import LakePaths
from cdc_pipeline.mirrors.model.steps import Step
from cdc_pipeline.mysql.model.table import TableName

PATHS = LakePaths("/lake", "p")
STATE, OTHER = (SimpleNamespace(name=TableName("db", name), mirror_id=name) for name in ("t", "u"))
TWO_MIRRORS = {
    "RenameMirror": "db.u db.t",
    "ExchangeRows": "db.t db.u",
}
MOVES = {
    "RenameMirror": PATHS.mirror(STATE.name),
    "DropMirror": PATHS.dropped_mirror(STATE.name, "1"),
}


def _step(kind: type[Step]) -> Any:
    values: dict[str, Any] = {"state": STATE, "before": OTHER, "other": OTHER, "source": OTHER, "ddl_id": "1"}
    return kind(**{field.name: values.get(field.name) for field in fields(kind)})


@pytest.mark.parametrize("kind", get_args(get_args(Step)[0]), ids=lambda kind: kind.__name__)
def test_mirrors_and_folder_of_a_step(kind: type[Step]) -> None:
    step = _step(kind)
    assert " ".join(map(str, step.names())) == TWO_MIRRORS.get(kind.__name__, "db.t")
    assert step.folder_after(PATHS) == MOVES.get(kind.__name__)
