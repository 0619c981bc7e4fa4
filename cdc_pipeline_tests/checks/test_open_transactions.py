"""The check `no_open_transactions`: what it names, and when it warns."""

from __future__ import annotations

from dataclasses import replace

import dagster as dg
import pytest

from cdc_pipeline.checks.open_transactions import open_transactions_result
from cdc_pipeline.sources.source import Intake, OpenTransaction

_YOUNG = OpenTransaction("t", 0, 5, 8)
_OLD = OpenTransaction("t", 1, 7, 90, is_overdue=True)
_INTAKE = Intake((), (), (), 0)


@pytest.mark.parametrize(
    ("intake", "named"),
    [
        (_INTAKE, []),
        (replace(_INTAKE, open_transactions=(_YOUNG,)), []),
        (
            replace(_INTAKE, open_transactions=(_YOUNG, _OLD)),
            ["1 partitions", "15 minutes", "t/1: last stable offset 7, end offset 90", "kafka-transactions.sh"],
        ),
        (
            replace(_INTAKE, reads_uncommitted=True),
            ["source.options", "isolation.level", "aborted", "Remove the option"],
        ),
    ],
)
def test_what_the_check_warns_about(intake: Intake, named: list[str]) -> None:
    found = open_transactions_result(intake, dg.AssetKey("raw"))
    assert (found.passed, found.severity) == (not named, dg.AssetCheckSeverity.WARN)
    assert [text for text in named if text not in (found.description or "")] == []
    assert (found.description is None) == (not named)
    assert list(found.metadata) == [f"t/{transaction.partition}" for transaction in intake.open_transactions]
