"""Tests of the model: a plain fold of its records yields its expected tables, and disturbances are as documented."""

from __future__ import annotations

import json
from collections import Counter
from functools import cache
from itertools import pairwise

import pytest
from hypothesis import HealthCheck, given, settings

from cdc_pipeline.contracts.limits import MAX_CLOCK_SKEW_MS
from cdc_pipeline.mysql.ddl.parser import parse_ddl
from cdc_pipeline.mysql.ddl.tokens import Quoting
from cdc_pipeline.mysql.model import schema_changes
from cdc_pipeline_tests.histories.combined import Combined, combined
from cdc_pipeline_tests.histories.ddl import CreateTable
from cdc_pipeline_tests.histories.encoders import MODES, has_watermarks
from cdc_pipeline_tests.histories.fold import folded
from cdc_pipeline_tests.histories.history import History
from cdc_pipeline_tests.histories.resends import is_distinguishable
from cdc_pipeline_tests.histories.setups import history_of_setup
from cdc_pipeline_tests.histories.shapes import Content, Name, Row, Table
from cdc_pipeline_tests.histories.strategies import combinations, histories, history_of_seed
from cdc_pipeline_tests.histories.tables import KINDS, table_of
from cdc_pipeline_tests.histories.ticdc import EXTENSION_MODES
from cdc_pipeline_tests.histories.upstream import DELETE, INSERT, START_TSO, TSO_SHIFT, UPDATE, Transaction, Upstream

_SEEDS = range(200)
_FEW = range(60)


@cache
def _history(seed: int, mode: str, transactions: int = 8) -> History:
    # the plain reader orders by statement time alone, and compares texts
    return history_of_seed(seed, transactions=transactions, mode=mode, ambiguous=False)


def _check(history: History | Combined, mode: str, *, least: int = 0) -> None:
    """After each file with a known state, the fold of the records so far equals that state."""
    checked = 0
    for number in range(len(history.slices)):
        truth = history.truth_after(number)
        if truth is None:
            continue
        parts = history.slices[: number + 1]
        records = [record for part in parts for record in (part if isinstance(part, tuple) else part.records)]
        assert folded(mode, records, history.resolved_after(number)) == truth
        checked += 1
    assert checked >= least


@pytest.mark.parametrize("mode", MODES)
def test_a_plain_fold_equals_the_model(mode: str) -> None:
    for seed in _SEEDS:
        _check(_history(seed, mode), mode, least=1)


@settings(max_examples=15, deadline=None, suppress_health_check=list(HealthCheck))
@given(histories(ambiguous=False))
def test_hypothesis_histories_fold_to_the_model(history: History) -> None:
    _check(history, history.mode, least=1)


@settings(max_examples=5, deadline=None, suppress_health_check=list(HealthCheck))
@given(combinations(["extension"], count=3, transactions=(5, 8), ambiguous=False))
def test_combined_histories_stop_at_the_smallest_resolved_tso(history: Combined) -> None:
    _check(history, "extension", least=1)


def test_combined_histories_without_watermarks_are_complete_at_the_end() -> None:
    both = combined([history_of_seed(seed, transactions=8, mode="canal") for seed in (1, 2)])
    assert both.final_truth() == both.histories[0].final_truth() | both.histories[1].final_truth()
    assert sum(len(lines) for lines in both.files()) == sum(len(history.records) for history in both.histories)


def test_a_seed_repeats_its_history() -> None:
    assert _history(7, "extension").files() == _history(7, "extension").files()
    assert _history(7, "canal").files() != _history(8, "canal").files()


@pytest.mark.parametrize("mode", ["extension", "default", "canal"])
def test_restarts_resend_messages(mode: str) -> None:
    replayed = 0
    for seed in _FEW:
        history = _history(seed, mode)
        assert {message.payload(0, 1) for message in history.messages} == {
            sent.message.payload(0, 1) for sent in history.timeline if sent.message.kind not in ("watermark", "note")
        }
        newest = 0
        for place, sent in enumerate(history.timeline):
            if sent.restarted and history.settings.disturbances.retries == 0:
                following = [later.message for later in history.timeline[place:] if later.message.kind == "row"]
                replayed += bool(following) and following[0].commit_ts < newest
            if sent.message.kind == "row":
                newest = max(newest, sent.message.commit_ts)
        times = [sent.ts for sent in history.timeline]
        disturbances = history.settings.disturbances
        if not disturbances.swaps and not disturbances.kept_clocks and history.settings.numbered:
            assert times == sorted(times)
    assert replayed > 3


def test_canal_resends_with_a_new_clock_or_its_former_one_and_with_or_without_numbers() -> None:
    found: Counter[str] = Counter()
    for seed in _SEEDS:
        history = _history(seed, "canal")
        numbered = history.settings.numbered
        assert all(bool(json.loads(record.payload)["id"]) == numbered for record in history.records)
        if not any(sent.restarted for sent in history.timeline):
            continue
        keeps = any(later.ts < sent.ts for sent, later in pairwise(history.timeline))
        found[f"{'former' if keeps else 'new'} clock, numbered: {numbered}"] += 1
        statements = Counter((id(sent.message), sent.ts) for sent in history.timeline if sent.message.kind == "ddl")
        found["statements with their former clock"] += max(statements.values(), default=0) > 1
    names = {"former clock, numbered: True", "former clock, numbered: False", "new clock, numbered: True"}
    assert found.keys() >= names
    assert min(found[name] for name in (*names, "statements with their former clock")) > 10, found


@pytest.mark.parametrize("mode", EXTENSION_MODES)
def test_no_change_follows_its_watermark(mode: str) -> None:
    """Except DDL at the very TSO of the watermark."""
    steps_back = after_their_own = 0
    for seed in _SEEDS:
        history = _history(seed, mode)
        missing = Counter(id(message) for message in history.messages)
        messages = {id(message): message for message in history.messages}
        last = 0
        for sent in history.timeline:
            missing.pop(id(sent.message), None)
            if sent.message.kind == "watermark":
                late = [messages[number] for number in missing if messages[number].commit_ts <= sent.message.commit_ts]
                assert {(message.kind, message.commit_ts) for message in late} <= {("ddl", sent.message.commit_ts)}
                after_their_own += bool(late)
                steps_back += sent.message.commit_ts < last
                last = sent.message.commit_ts
        assert not missing
    assert steps_back > 10
    assert after_their_own > 10


def test_each_partition_begins_in_the_first_file_and_files_hold_all_records() -> None:
    uneven = 0
    for seed in _FEW:
        history = _history(seed, "extension")
        first = {record.partition for record in history.slices[0].records}
        assert first == set(range(history.settings.partitions))
        held: dict[int, int] = {}
        for part in history.slices:
            new = [record for record in part.records if record.offset >= held.get(record.partition, 0)]
            for record in new:
                assert record.offset == held.get(record.partition, 0)
                held[record.partition] = record.offset + 1
            uneven += len(new) < len(part.records)
        assert len({(record.partition, record.offset, record.payload) for record in history.records}) == sum(
            held.values()
        )
        assert [json.loads(line)["payload"] for line in history.files()[0]] == [
            record.payload for record in history.slices[0].records
        ]
    assert uneven > 10


def test_resends_are_distinguishable() -> None:
    for mode in MODES:
        for seed in _FEW:
            history = _history(seed, mode)
            assert is_distinguishable(mode, history.timeline, history.messages)


def test_all_kinds_of_keys_and_values_occur() -> None:
    found: Counter[str] = Counter()
    for seed in range(50):
        history = _history(seed, "extension", 12)
        state = history.upstream.state_at(1 << 62)
        for table in history.upstream.tables:
            found[table.kind] += 1
            rows = state[table.full_name].rows
            keys = set(rows)
            texts = {value for row in keys for value in row if value is not None}
            found["high bytes"] += table.kind == "varbinary_pk" and any(
                max(text, default="") >= "\x80" for text in texts
            )
            found["case"] += table.kind == "varchar_pk" and {"a", "A"} <= texts
            found["trailing space"] += table.kind == "varchar_pk" and {"a", "a "} <= texts
            found["equal rows"] += len(rows) > len(keys)
            found["nulls"] += any(value is None for row in rows for value in row)
        for sent in history.timeline:
            found[f"{sent.message.op} of key"] += sent.message.kind == "row" and sent.message.rows[0].changes_key
    expected = {*KINDS, "high bytes", "case", "trailing space", "equal rows", "nulls", "UPDATE of key"}
    assert {name for name, number in found.items() if number} >= expected


def test_omissions_of_old_versions_of_canal_occur() -> None:
    found = Counter[str]()
    for seed in _SEEDS:
        for message in _history(seed, "canal").messages:
            body = message.body
            if message.kind != "row":
                found["statement without data"] += "data" not in body
                continue
            found["without nulls"] += any(row.keys() != body["mysqlType"].keys() for row in body["data"])
            found["without pkNames"] += "pkNames" not in body
            if message.op == UPDATE:
                found["without old"] += not body.get("old")
                found["fewer rows in old"] += 0 < len(body.get("old") or []) < len(body["data"])
                found["empty rows in old"] += {} in (body.get("old") or [])
    assert set(found) == set(+found), found


def test_early_encoders_and_watermarks_from_the_future_occur() -> None:
    found: Counter[str] = Counter()
    for mode in ("default", "extension"):
        for seed in range(50):
            for record in _history(seed, mode, 12).records:
                body = json.loads(record.payload)
                types = list((body["sqlType"] or {}).items())
                kinds = {"bytes" if body["mysqlType"][name] == "varbinary" else "other": code for name, code in types}
                if body["ts"] == 0:
                    found["early statement"] += bool(body["isDdl"])
                    found[f"early {body['type']}"] += 1
                    found["early bytes"] += kinds.get("bytes") == 12
                    found["early bytes that are no text"] += kinds.get("bytes") == 2004
                if record.kind == "note":
                    sent = json.loads(record.line())["ts"]
                    assert (body["_tidb"]["watermarkTs"] >> TSO_SHIFT) - sent > MAX_CLOCK_SKEW_MS
                    found["from the future"] += 1
                elif record.kind == "watermark":
                    assert json.loads(record.line())["ts"] >= body["_tidb"]["watermarkTs"] >> TSO_SHIFT
    expected = {"statement", "INSERT", "UPDATE", "DELETE", "bytes", "bytes that are no text"}
    assert {name for name, number in found.items() if number} >= {
        "from the future",
        *(f"early {of}" for of in expected),
    }


def test_binlogs_are_played_again() -> None:
    """With equal messages, also statements, whose `es` steps back, after DROP, TRUNCATE or DELETE; and resent, too."""
    found: Counter[str] = Counter()
    for seed in _SEEDS:
        history = history_of_setup("canal_one_partition", seed, 0)
        for message in history.messages:
            if message.first is not None:
                assert message.payload(0, 1) == message.first.payload(0, 1)
                found[message.kind] += 1
        begins = min(history.upstream.replays, default=0)
        last = max((event.commit_ts for event in history.upstream.replays.values()), default=0)
        found.update(message.op for message in history.messages if last < message.commit_ts < begins)
        sent = Counter(id(sent.message) for sent in history.timeline if sent.message.first is not None)
        found["resent"] += sum(sent.values()) > len(sent)
    assert min(found[name] for name in ("row", "ddl", "ERASE", "TRUNCATE", "DELETE", "resent")) > 3, found


@pytest.mark.parametrize("view", ["statements", "net"])
def test_before_images_match_the_state(view: str) -> None:
    for seed in _FEW:
        history = _history(seed, "canal", 20)
        rows: dict[Name, Counter[object]] = {}
        for event in history.upstream.events:
            state = history.upstream.state_at(event.commit_ts)
            if not isinstance(event, Transaction):
                # DDL replaces the rows by those of the state
                rows = {name: Counter(content.rows) for name, content in state.items()}
                continue
            made = event.statements if view == "statements" else event.net
            for sign in (-1, 1):
                for change in made if view == "net" else ():
                    _count(rows[change.table.full_name], change.before if sign < 0 else change.after, sign)
                assert all(number >= 0 for counts in rows.values() for number in counts.values())
            for change in made if view == "statements" else ():
                _count(rows[change.table.full_name], change.before, -1)
                assert min(rows[change.table.full_name].values(), default=0) >= 0
                _count(rows[change.table.full_name], change.after, 1)
            assert {name: +counts for name, counts in rows.items()} == {
                name: Counter(content.rows) for name, content in state.items()
            }


def _count(counts: Counter[object], row: Row | None, sign: int) -> None:
    if row is not None:
        counts[tuple(row.values())] += sign


def _ops(upstream: Upstream, clustered: bool) -> tuple[Table, Row, Row]:
    table = table_of("int_pk", "db", "t", clustered=clustered)
    upstream.execute(CreateTable(table), START_TSO)
    one: Row = {"id": "1", "note": "x", "amount": None}
    two: Row = {"id": "2", "note": "y", "amount": None}
    start = upstream.begin(START_TSO + 1)
    start.insert(table, [one, two])
    start.commit()
    return table, one, two


@pytest.mark.parametrize("clustered", [True, False])
def test_net_changes_are_those_of_tikv(clustered: bool) -> None:
    upstream = Upstream()
    table, one, two = _ops(upstream, clustered)
    first, second = upstream.rows[table]
    swap = upstream.begin(START_TSO + 2)
    swap.update(table, first, one | {"id": "9"})
    swap.update(table, second, two | {"id": "1"})
    swap.update(table, first, one | {"id": "2"})
    swapped = swap.commit()
    assert [change.op for change in swapped.statements] == [UPDATE] * 3
    assert [(change.op, change.changes_key) for change in swapped.net] == [(UPDATE, not clustered)] * 2

    again = upstream.begin(START_TSO + 3)
    again.delete(table, [first])
    again.insert(table, [{"id": "2", "note": "new", "amount": None}])
    back = again.commit()
    assert [change.op for change in back.statements] == [DELETE, INSERT]
    assert [change.op for change in back.net] == ([UPDATE] if clustered else [DELETE, INSERT])

    nothing = upstream.begin(START_TSO + 4)
    row = upstream.rows[table][second]
    nothing.update(table, second, row)
    nothing.update(table, second, row | {"note": "z"})
    nothing.update(table, second, row)
    nothing.delete(table, nothing.insert(table, [{"id": "7", "note": None, "amount": None}]))
    gone = nothing.commit()
    assert [change.op for change in gone.statements] == [UPDATE, UPDATE, INSERT, DELETE]
    assert gone.net == ()


def test_the_state_at_each_tso() -> None:
    upstream = Upstream()
    table, one, two = _ops(upstream, clustered=True)
    assert upstream.state_at(START_TSO - 1) == {}
    assert upstream.state_at(START_TSO) == {table.full_name: Content(table.columns, [])}
    rows = [tuple(one.values()), tuple(two.values())]
    assert upstream.state_at(START_TSO + 5) == {table.full_name: Content(table.columns, rows)}


@pytest.mark.parametrize("kind", KINDS)
def test_the_parser_reads_create_statements(kind: str) -> None:
    table = table_of(kind, "db", kind)
    (create,) = parse_ddl(table.create_statement(), "db")
    assert parse_ddl(table.create_statement(printed=True), "db", quotings=[Quoting.TIDB]) == (create,)
    assert isinstance(create, schema_changes.CreateTable)
    assert tuple(column.name for column in create.schema.columns) == table.names
    assert sorted(create.schema.row_key) == sorted(table.key)


def test_rows_in_the_form_of_expected_json() -> None:
    table = table_of("varbinary_pk", "db", "t")
    assert Content(table.columns, [(None, "\x80a", "é")]).expected() == (
        [
            {"name": "big", "type": "bigint unsigned"},
            {"name": "k", "type": "varbinary(8)"},
            {"name": "note", "type": "varchar(20)"},
        ],
        [[None, "8061", "é"]],
    )


def test_all_histories_of_a_mode_have_watermarks_or_none() -> None:
    for mode in MODES:
        kinds = {record.kind for seed in range(10) for record in _history(seed, mode).records}
        assert ("watermark" in kinds) == has_watermarks(mode)
