"""When conditions begin and end, and what a message says."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cdc_pipeline.sensors.alerts import (
    EVENTS,
    LONGEST_LINE,
    MOST_CONDITIONS,
    MOST_LINES,
    QUIET_SECONDS,
    Alert,
    Evaluation,
    Item,
    Observation,
    Place,
    compare,
    conditions,
    follow,
    to_alerts,
)
from cdc_pipeline.sensors.messages import Message
from cdc_pipeline.sensors.notify_state import MOST_WAITING, NotifyState

_PLACE = Place("asset p/consistent_cuts, check no_gaps", "assets/p/consistent_cuts?view=checks&checkDetail=no_gaps")
_HELD = "held (ddl_policy) until its statement is approved: see ddl_history at t/0@{}"
_QUARANTINED = (
    "quarantined: ApplyRows of a.b failed 3 times; x: y. Later changes are held; rebuild the table to resume it"
)


def _result(check: str, entries: dict[str, str], *, text: str = "why", time: float = 1.0) -> Evaluation:
    return Evaluation(check, _PLACE, time, not entries, text if entries else "", entries)


def _known(check: str, entries: dict[str, str]) -> dict[str, int]:
    return compare({}, _result(check, entries))[0]


def _changes(check: str, before: dict[str, str] | None, now: dict[str, str]) -> list[tuple[str, str, str]]:
    _, items = compare({} if before is None else _known(check, before), _result(check, now))
    return [(item.event, item.state, item.line) for item in items]


# ---- state of the lake


def test_gaps_of_a_table_are_reported_by_reason() -> None:
    old = {"a.b": "column c: damaged; 3 changes came late"}
    assert _changes("no_gaps", None, old) == [
        ("gap", "began", "a.b: column c: damaged"),
        ("gap", "began", "a.b: 3 changes came late"),
    ]
    # closed only when the table has no gap
    assert _changes("no_gaps", old, {"a.b": "4 changes came late; column d: damaged"}) == [
        ("gap", "began", "a.b: column d: damaged")
    ]
    assert _changes("no_gaps", old, {"a.b": "4 changes came late"}) == []
    assert [state for _, state, _ in _changes("no_gaps", old, {"c.d": "y"})] == ["ended", "began"]
    assert _changes("no_gaps", {"a.b": "x; y", "c.d": "x"}, {"c.d": "x"}) == [("gap", "ended", "a.b")]
    assert _changes("no_gaps", {"a.b": "x"}, {}) == [("gap", "ended", "a.b")]
    assert _changes("no_gaps", {"a.b": "x"}, {"a.b": "x"}) == []


def test_held_and_quarantined_tables_are_no_gaps() -> None:
    held = {"a.b": f"column c: damaged; {_HELD.format(7)}"}
    assert _changes("no_gaps", None, held) == [
        ("ddl_held", "began", f"a.b: {_HELD.format(7)}"),
        ("gap", "began", "a.b: column c: damaged"),
    ]
    # the approved statement was followed by another one that is held
    assert _changes("no_gaps", {"a.b": _HELD.format(7)}, {"a.b": _HELD.format(9)}) == [
        ("ddl_held", "ended", f"a.b: {_HELD.format(7)}"),
        ("ddl_held", "began", f"a.b: {_HELD.format(9)}"),
    ]
    assert _changes("no_gaps", held, {"a.b": f"column c: damaged; {_QUARANTINED}"}) == [
        ("ddl_held", "ended", f"a.b: {_HELD.format(7)}"),
        ("quarantine", "began", f"a.b: {_QUARANTINED}"),
    ]
    again = _QUARANTINED.replace("3 times", "4 times")
    assert _changes("no_gaps", {"a.b": _QUARANTINED}, {"a.b": again}) == []


@pytest.mark.parametrize(
    ("check", "text", "began", "ended"),
    [
        ("no_dead_letters", "{}, for example t/0@1", "x: 10, for example t/0@1", "x"),
        (
            "no_breach",
            "{} change(s), the first at t/0@1",
            "no_breach: x: 10 change(s), the first at t/0@1",
            "no_breach: x",
        ),
    ],
)
def test_numbers_are_reported_again_when_they_are_ten_times_as_many(
    check: str, text: str, began: str, ended: str
) -> None:
    known: dict[str, int] = {}
    reported = []
    for count in (1, 9, 10, 9, 10, 99, 100):
        known, items = compare(known, _result(check, {"x": text.format(count)}))
        reported.append([item.state for item in items])
        if count == 10 and items:
            assert [item.line for item in items] == [began]
    assert reported == [["began"], [], ["began"], [], [], [], ["began"]]
    known, (item,) = compare(known, _result(check, {}))
    assert (known, item.state, item.line) == ({}, "ended", ended)


def test_each_loss_of_offsets_of_a_partition_is_reported() -> None:
    first, second = {"t/0": "1–4, skipped in batch 3"}, {"t/0": "7–9, skipped in batch 5"}
    assert _changes("no_lost_offsets", first, first) == []
    assert _changes("no_lost_offsets", first, second) == [
        ("check_failed", "began", "no_lost_offsets: t/0: 7–9, skipped in batch 5")
    ]


def test_of_many_conditions_the_number_is_reported() -> None:
    def gaps(start: int, end: int) -> dict[str, str]:
        return {f"a.t{number}": "x" for number in range(start, end)}

    most = MOST_CONDITIONS
    (number, *began) = _changes("no_gaps", None, gaps(0, most + 5))
    assert number == ("gap", "began", f"no_gaps: {most + 5} conditions; alerts name only {most} of them")
    assert [line for _, _, line in began] == [f"a.t{table}: x" for table in range(most)]
    assert len(_known("no_gaps", gaps(0, most + 5))) == most + 1
    # new tables do not displace those that are known
    known = _known("no_gaps", gaps(5, most + 5))
    known, (item,) = compare(known, _result("no_gaps", gaps(0, most + 5)))
    assert item.line.startswith("no_gaps: ")
    # those that were only counted are named when others end
    _, items = compare(known, _result("no_gaps", gaps(3, most + 3)))
    assert [(item.state, item.line) for item in items] == [
        ("ended", f"more than {most} conditions"),
        ("ended", f"a.t{most + 3}"),
        ("ended", f"a.t{most + 4}"),
        ("began", "a.t3: x"),
        ("began", "a.t4: x"),
    ]


@pytest.mark.parametrize("check", ["no_breach", "keys_hold", "schema_matches_ddl", "field_rules"])
def test_checks_of_the_lake_are_reported_per_table(check: str) -> None:
    notes = {"wrong_tables": "['a.b']", "checked": "1 of 2"} if check in ("keys_hold", "schema_matches_ddl") else {}
    notes |= {"shapes": "4"} if check == "field_rules" else {}
    first, second = {"a.b": "x", **notes}, {"a.b": "y", "c.d": "x", **notes}
    assert _changes(check, None, first) == [("check_failed", "began", f"{check}: a.b: x")]
    assert _changes(check, first, second) == [("check_failed", "began", f"{check}: c.d: x")]


def test_a_check_that_passes_has_no_conditions() -> None:
    passed = Evaluation("keys_hold", _PLACE, 1.0, True, "", {"checked": "all"})
    assert conditions(passed) == {}


# ---- what alternates


def _seen(time: float, failed: bool, level: int = 0, key: str = "check a:balance") -> Observation:
    return Observation(key, "check_failed", time, failed, f"balance: {time:g}", _PLACE, level)


def test_a_failing_check_is_reported_once_and_ends_when_it_was_quiet() -> None:
    failing, items = follow({}, [_seen(0, True), _seen(7, False), _seen(14, True), _seen(21, True)], 30)
    assert [(item.state, item.line) for item in items] == [("began", "balance: 0")]
    for now in (60, 21 + QUIET_SECONDS):  # without a result that passes it does not end
        failing, items = follow(failing, [], now)
        assert items == []
    # it alternates: reported neither as ended nor again
    failing, items = follow(failing, [_seen(700, True), _seen(710, False)], 720)
    assert items == []
    failing, items = follow(failing, [_seen(1290, False)], 700 + QUIET_SECONDS - 1)
    assert items == []
    failing, items = follow(failing, [], 700 + QUIET_SECONDS)
    assert [(item.state, item.line) for item in items] == [("ended", "balance: 700")]
    assert failing == {}
    _, items = follow(failing, [_seen(1400, True)], 1401)
    assert [item.state for item in items] == ["began"]


def test_a_higher_level_is_reported_and_a_lower_one_is_not() -> None:
    failing, items = follow({}, [_seen(0, True, 1), _seen(1, True, 2), _seen(2, True, 1), _seen(3, True, 2)], 5)
    assert [item.line for item in items] == ["balance: 0", "balance: 1"]
    assert failing["check a:balance"].level == 2


def test_success_of_something_that_did_not_fail_is_no_news() -> None:
    assert follow({}, [_seen(0, False)], 1000) == ({}, [])


# ---- messages


def _alerts(count: int, state: str = "began") -> list[Alert]:
    items = [Item("gap", state, f"a.t{number}: reason", _PLACE, 1795698251.0) for number in range(count)]  # type: ignore[arg-type]
    return to_alerts("shop", items, EVENTS)


def test_one_message_lists_all_tables() -> None:
    (alert,) = _alerts(MOST_LINES + 3)
    assert (len(alert.lines), alert.more) == (MOST_LINES, 3)
    text = Message(alert).text
    assert text.splitlines()[:2] == ["shop: gap opened (11), 2026-11-26 13:04 UTC", "• a.t0: reason"]
    assert "and 3 more" in text
    assert _GAPS in text
    ended = Message(_alerts(1, "ended")[0]).text
    assert ended.splitlines()[:2] == ["shop: gap closed, 2026-11-26 13:04 UTC", "• no longer: a.t0: reason"]
    assert "cdc-pipeline docs" not in ended


_RELEASE, _GAPS = "shop_release_dead_letters", "`cdc-pipeline docs operations gaps`"


@pytest.mark.parametrize(
    ("event", "line", "check", "named", "not_named"),
    [
        ("gap", "a.b: 2 record(s) are dead letters of rule x, the first at t/0@1", "no_gaps", _RELEASE, _GAPS),
        ("gap", "a.b: 1 row(s) with values that their types cannot hold: see dead_letters", "no_gaps", _RELEASE, _GAPS),
        ("gap", "a.b: a statement is not applied yet: see ddl_history at t/0@1", "no_gaps", _GAPS, _RELEASE),
        ("check_failed", "field_rules: x: 1", "field_rules", "Only a warning", "shop_rebuild"),
        ("check_failed", "keys_hold: a.b: x", "keys_hold", "shop_rebuild", _GAPS),
        ("check_failed", "contract: x", "contract", "cdc-pipeline docs operations checks", "shop_rebuild"),
    ],
)
def test_advice_fits_the_reason(event: str, line: str, check: str, named: str, not_named: str) -> None:
    place = Place(f"asset p/consistent_cuts, check {check}", "")
    text = Message(Alert("shop", event, "began", 1.0, place, (line,))).text  # type: ignore[arg-type]
    assert named in text
    assert not_named not in text


def test_what_ended_has_no_advice() -> None:
    line = "watermarks_advance: t/1: its newest watermark lags by 721 s. Check that the changefeed writes it"
    text = Message(Alert("shop", "check_failed", "ended", 1.0, _PLACE, (line,))).text
    assert text.splitlines() == [
        "shop: check passes again, 1970-01-01 00:00 UTC",
        "• no longer: watermarks_advance: t/1: its newest watermark lags by 721 s",
        _PLACE.text,
    ]


def test_reasons_of_different_kinds_have_both_advices() -> None:
    lines = ("a.b: 2 record(s) are dead letters of rule x, the first at t/0@1", "a.b: column c: damaged")
    text = Message(Alert("shop", "gap", "began", 1.0, _PLACE, lines)).text
    assert _RELEASE in text
    assert _GAPS in text


def test_only_declared_events_are_sent() -> None:
    items = [Item("gap", "began", "x", _PLACE, 1), Item("lag", "began", "y", _PLACE, 1)]
    assert [alert.event for alert in to_alerts("shop", items, ["lag"])] == ["lag"]


def test_lines_are_short_and_without_control_characters() -> None:
    (alert,) = to_alerts("shop", [Item("gap", "began", "a\nb\x1b[0m" + "c" * 1000, _PLACE, 1)], EVENTS)
    assert alert.lines[0].startswith("a b [0mccc")
    assert len(alert.lines[0]) == LONGEST_LINE


def test_link_to_the_ui_or_the_asset() -> None:
    (alert,) = _alerts(1)
    page = "https://dagster.example.com/x/assets/p/consistent_cuts?view=checks&checkDetail=no_gaps"
    assert Message(alert, "https://dagster.example.com/x").text.splitlines()[-1] == page
    assert Message(alert).text.splitlines()[-1] == "asset p/consistent_cuts, check no_gaps"
    fields = Message(alert, "https://dagster.example.com/x", dropped=2).fields
    assert (fields["event"], fields["state"], fields["url"]) == ("gap", "began", page)
    assert fields["time"] == "2026-11-26T13:04:11+00:00"
    assert "2 earlier alerts were not delivered" in fields["text"]
    assert Message(alert).fields["url"] is None


@pytest.mark.parametrize("event", EVENTS)
def test_each_event_has_a_title(event: str) -> None:
    states = ["occurred"] if event in ("ddl_applied", "ddl_not_supported") else ["began", "ended"]
    titles = {Message(Alert("shop", event, state, 1.0, _PLACE, ("x",))).title for state in states}  # type: ignore[arg-type]
    assert len(titles) == len(states)


# ---- the cursor


def test_cursor_is_equal_after_it_was_stored() -> None:
    failing, _ = follow({}, [_seen(0, True, 2)], 1)
    state = NotifyState(3, {"a:b": {"gap a.b 0": 1}}, 4, 5, None, failing).with_alerts(
        _alerts(2), ("slack_url", "email")
    )
    assert NotifyState.parse(state.to_cursor()) == state


@pytest.mark.parametrize("cursor", [None, "", "x", "[]", '{"conditions": {"a": "b"}}', '{"other": 1}'])
def test_damaged_cursor_is_an_empty_state(cursor: str | None) -> None:
    assert NotifyState.parse(cursor) == NotifyState()


def test_waiting_messages_are_bounded_and_counted() -> None:
    state = NotifyState()
    for _ in range(MOST_WAITING + 5):
        long = [replace(alert, lines=("x" * LONGEST_LINE,) * MOST_LINES) for alert in _alerts(1)]
        state = state.with_alerts(long, ("slack_url", "email")).after_delivery({"email": frozenset()})
    assert len(state.waiting) == MOST_WAITING
    assert state.dropped == {"slack_url": 5, "email": 5}
    observations = [_seen(number, True, key=f"run job {number} " + "y" * 50) for number in range(500)]
    failing, _ = follow({}, observations, 501)
    assert len(replace(state, failing=failing).to_cursor()) < 64_000
    # one channel got the oldest message, and with it the number of dropped ones
    state = state.after_delivery({"email": frozenset({0})})
    assert state.dropped == {"slack_url": 5}
    assert [kept.channels for kept in state.waiting[:2]] == [("slack_url",), ("slack_url", "email")]


def test_messages_of_a_removed_channel_are_forgotten() -> None:
    state = NotifyState(dropped={"email": 2}).with_alerts(_alerts(1), ("slack_url", "email"))
    state = state.after_delivery({"slack_url": frozenset({0})}).with_alerts([], ("slack_url",))
    assert (state.waiting, state.dropped) == ((), {})
