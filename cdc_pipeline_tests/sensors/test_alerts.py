"""When conditions begin and end, and what a message says."""

from __future__ import annotations

import pytest

from cdc_pipeline.gaps import GapKind, statement_gap
from cdc_pipeline.mirrors.settings.ddl_policy import HeldTable
from cdc_pipeline.mysql.model.table import TableName
from cdc_pipeline.positions import Position
from cdc_pipeline.sensors.alerts import QUIET_SECONDS, Changes, Condition, Known, compare, message, reasons

_LATE = str(statement_gap(GapKind.LATE_DDL, "DDL arrived late", Position("t", 0, 7)))
_QUARANTINED = str(HeldTable(TableName("a", "b"), Position("", -1, -1), 1, error="ApplyRows failed 3 times; see x").gap)


@pytest.mark.parametrize(
    ("check", "before", "after", "is_new"),
    [
        ("no_gaps", "3 changes came late", "4 changes came late", False),
        ("no_gaps", "9 changes came late", "10 changes came late", True),
        ("no_gaps", _LATE, f"4 changes came late; {_LATE.replace('@7', '@17')}", True),
        ("no_gaps", f"4 changes came late; {_LATE}", _LATE, False),
        ("no_gaps", _LATE, _QUARANTINED, True),
        ("no_gaps", _QUARANTINED, _QUARANTINED.replace("3 times", "4 times"), False),
        ("no_dead_letters", "3 of a.b, for example t/0@1", "9 of a.b, for example t/0@1, t/0@5", False),
        ("no_dead_letters", "3 of a.b, for example t/0@1", "11 of a.b, for example t/0@1", True),
        ("no_dead_letters", "3 of a.b, for example t/0@1", "4 of a.b, a.c, for example t/0@1", True),
        (
            "field_rules",
            "3, expected: x; for example t/0@1",
            "7, expected: x; for example t/0@1; last in batch 4",
            False,
        ),
        ("no_lost_offsets", "1–4, skipped in batch 3", "7–9, skipped in batch 5", True),
    ],
)
def test_new_reasons(check: str, before: str, after: str, is_new: bool) -> None:
    assert (not set(reasons(check, after)) <= set(reasons(check, before))) == is_new


def _observed(**reasons: int) -> dict[str, dict[str, Condition]]:
    return {"no_gaps": {subject: Condition("why", "page", (reason,)) for subject, reason in reasons.items()}}


def test_a_condition_is_reported_when_it_begins_and_when_it_was_quiet() -> None:
    known: dict[str, dict[str, Known]] = {}
    end = QUIET_SECONDS
    for now, observed, began, ended in (
        (0, _observed(a=1), ["no_gaps: a: why"], []),
        (1, _observed(a=1), [], []),
        (2, _observed(a=2), ["no_gaps: a: why"], []),
        (3, _observed(a=1, b=1), ["no_gaps: b: why"], []),
        # it alternates
        (4, _observed(b=1), [], []),
        (5, _observed(a=1, b=1), [], []),
        (6, _observed(b=1), [], []),
        # without a result nothing is known to have ended
        (5 + end, {}, [], []),
        (4 + end, _observed(b=1), [], []),
        (5 + end, _observed(b=1), [], ["no_gaps: a"]),
        (6 + end, _observed(a=1, b=1), ["no_gaps: a: why"], []),
    ):
        known, changes = compare(known, observed, now)
        assert ([line for line, _ in changes.began], list(changes.ended)) == (began, ended), now


def test_message() -> None:
    began = tuple((f"no_gaps: a.t{number}: x", Condition("x", f"assets/{number % 2}")) for number in range(2))
    title, text = message("shop", Changes(began, ("run of shop_ingest",)), "https://ui")
    assert title == "shop: 2 new and 1 ended"
    assert text.splitlines() == [
        "• no_gaps: a.t0: x",
        "• no_gaps: a.t1: x",
        "• no longer: run of shop_ingest",
        "What to do: `cdc-pipeline docs operations alerts`",
        "https://ui/assets/0",
        "https://ui/assets/1",
    ]
    title, text = message("shop", Changes(ended=("run of shop_ingest",)), "https://ui")
    assert (title, text) == ("shop: 1 ended", "• no longer: run of shop_ingest")


def test_long_and_hostile_texts() -> None:
    hostile = {"a\nb\x1b[0m\u202e @everyone t/0@17 " + "c" * 1000: Condition("x", "page")}
    _, changes = compare({}, {"no_gaps": hostile, "other": {f"{n:0100}": Condition("y", "page") for n in range(50)}}, 0)
    _, text = message("shop", changes, "")
    first, *_, more, _ = text.splitlines()
    assert first.startswith("• no_gaps: a b [0m @\u200beveryone t/0@17 ccc")
    assert len(first) < 250
    shown = text.count("other")
    assert 0 < shown < 50
    assert more == f"and {50 - shown} more"
    assert len(text) < 2000
