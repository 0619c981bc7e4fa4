"""Which folders a step reads, writes and moves."""

from __future__ import annotations

from dataclasses import fields
from typing import Any, get_args

import pytest

from cdc_pipeline.lake.paths import LakePaths
from cdc_pipeline.mirrors.model.steps import RenameMirror, Step
from cdc_pipeline_tests.support.plans.by_hand import mirror_state

PATHS, REMOTE = LakePaths("/lake", "p"), LakePaths("s3a://lake", "p")
STATE, OTHER = (mirror_state(name) for name in ("t", "u"))
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
    assert step.folder_after(REMOTE) == (STATE.folder(REMOTE) if kind is RenameMirror else None)


@pytest.mark.parametrize(
    ("dropped_by", "local", "remote"),
    [
        (None, PATHS.mirror(OTHER.name), OTHER.folder(REMOTE)),
        ("1", PATHS.dropped_mirror(OTHER.name, "1"), OTHER.folder(REMOTE)),
    ],
)
def test_where_a_rename_finds_its_mirror(dropped_by: str | None, local: str, remote: str) -> None:
    step = RenameMirror(STATE, OTHER, dropped_by)
    assert (step.folder_before(PATHS), step.folder_before(REMOTE)) == (local, remote)
