"""Before images are compared with what mirrors had: a change that never arrived shows in the next one about its row."""

from __future__ import annotations

import random
from collections import Counter
from datetime import timedelta
from pathlib import Path
from unittest.mock import patch

import pytest
from pyspark.sql import SparkSession

from cdc_pipeline.checks.cuts import before_images_results
from cdc_pipeline.lake.lake import Lake
from cdc_pipeline.lake.tables.verifications import Verified, read_verifications, verified_totals
from cdc_pipeline.mirrors.cuts.cut_maker import CutMaker
from cdc_pipeline.mirrors.operations import verification
from cdc_pipeline.mirrors.operations.rebuild import Rebuilder
from cdc_pipeline.mirrors.operations.verification import Verifier
from cdc_pipeline.mirrors.settings.cut_settings import CutSettings
from cdc_pipeline_tests.support.lakes.mirror_checks import CHECKED
from cdc_pipeline_tests.support.lakes.stories import KEYLESS, change, create, delete, put, softly, update
from cdc_pipeline_tests.support.lakes.stream import Stream
from cdc_pipeline_tests.support.messages import canal, canal_ddl


def _verify(stream: Stream) -> dict[str, tuple[int, int, int]]:
    """Table → its new changes, those that proved their row, and those that contradict it."""
    found = Verifier(stream.lake, CutSettings("UTC"), lambda line: None).verify("verify")
    return {one.table: (one.changes, one.proved, one.contradicted) for one in found}


def _gaps(stream: Stream) -> dict[str, str]:
    found = Verifier(stream.lake, CutSettings("UTC"), lambda line: None).contradicted()
    return {name.table: gap.detail for name, gap in found.items()}


def _totals(stream: Stream) -> dict[str, Verified]:
    return verified_totals(read_verifications(stream.lake))


@pytest.fixture
def stream(spark: SparkSession, tmp_path: Path) -> Stream:
    return Stream(spark, tmp_path / "one")


def test_changes_prove_their_rows(stream: Stream) -> None:
    tables = [create("a", 1), create("keyless", 1, KEYLESS)]
    rows = [put("a", 2, "1", "one"), put("a", 2, "2", "two"), put("keyless", 3, "1", "x")]
    later = [
        update("a", 4, ("1", "one"), ("1", "uno")),
        update("a", 5, ("2", "two"), ("3", "two")),
        delete("a", 6, "3", "two"),
    ]
    stream.write_slice(10, *tables, *rows, *later, update("a", 4, ("1", "one"), ("1", "uno")))
    stream.run()
    assert _verify(stream) == {"a": (6, 5, 0), "keyless": (1, 0, 0)}
    assert _verify(stream) == {}
    # compared with the mirror
    stream.write_slice(
        20, update("a", 11, ("1", "uno"), ("1", "eins")), put("a", 12, "2", "again"), delete("a", 13, "1", "eins")
    )
    stream.run()
    assert _verify(stream) == {"a": (3, 3, 0)}
    assert _gaps(stream) == {}
    # with other columns
    stream.write_slice(30, change("ALTER TABLE a MODIFY v VARCHAR(5)", 21), delete("a", 22, "2", "again"))
    stream.run()
    assert _verify(stream) == {"a": (1, 0, 0)}
    totals = {one.table: (one.changes, one.proved, one.reason) for one in _totals(stream).values()}
    altered = "a statement has changed the table in between"
    assert totals == {"a": (10, 8, altered), "keyless": (1, 0, "it has no key")}


MISSING = {
    "update": (update("a", 14, ("1", "uno"), ("1", "due")), "columns v"),
    "insert": (update("a", 14, ("9", "nine"), ("9", "neun")), "row than they replace,"),
    "insert_of_a_deleted_row": (delete("a", 14, "9", "nine"), "row than they replace,"),
    "delete": (put("a", 14, "1", "back"), "columns v"),
}


@pytest.mark.parametrize("fault", MISSING)
@pytest.mark.parametrize("in_one_cut", [True, False], ids=["chain", "mirror"])
def test_a_change_that_never_arrived(stream: Stream, fault: str, in_one_cut: bool) -> None:
    later, words = MISSING[fault]
    stream.write_slice(10, create("a", 1), put("a", 2, "1", "one"), put("a", 2, "2", "two"))
    if not in_one_cut:
        stream.run()
        assert _verify(stream) == {"a": (2, 2, 0)}
    stream.write_slice(20, later, update("a", 15, ("2", "two"), ("2", "zwei")))
    stream.run()
    assert _verify(stream) == {"a": (2, 1, 1) if not in_one_cut else (4, 3, 1)}
    assert words in _gaps(stream)["a"]
    # one gap, whatever follows
    stream.write_slice(30, update("a", 25, ("2", "two"), ("2", "due")))
    stream.run()
    assert _verify(stream) == {"a": (1, 0, 1)}
    assert words in _gaps(stream)["a"]
    stream.write_slice(40, change("TRUNCATE TABLE a", 31), put("a", 32, "2", "new"))
    stream.run()
    assert _verify(stream) == {"a": (1, 1, 0)}
    assert _gaps(stream) == {}


def test_a_partition_that_is_behind(stream: Stream) -> None:
    """Canal sends an UPDATE of the key to the partition of the new one."""
    created = canal_ddl("CREATE TABLE t (id INT PRIMARY KEY, v VARCHAR(9))", 1, table="t", kind="CREATE")
    first = [(created, 0), (_canal("INSERT", 2, "1", "a"), 0), (_canal("INSERT", 3, "9", "z"), 1)]
    # the UPDATE between them has not arrived yet
    again = [(_canal("DELETE", 4, "9", "z"), 1), (_canal("INSERT", 6, "1", "b"), 0), (_canal("INSERT", 7, "3", "c"), 0)]
    for message, partition in (*first, *again):
        stream.topic.send(message, partition)
    stream.topic.write(stream.folder / "captures", "1.jsonl")
    stream.run()
    assert _verify(stream) == {"t": (5, 1, 0)}  # the last two are newer than those of the other partition
    stream.topic.send(_canal("UPDATE", 5, "9", "a", old={"id": "1"}), 1)
    stream.topic.send(_canal("DELETE", 8, "3", "c"), 0)
    stream.topic.write(stream.folder / "captures", "2.jsonl")
    stream.run()
    assert _verify(stream) == {"t": (1, 0, 0)}
    assert _totals(stream).popitem()[1].reason == "it has a gap: late_changes"


def _canal(kind: str, step: int, key: str, value: str, old: dict[str, str | None] | None = None) -> str:
    types, image = {"id": "int", "v": "varchar(9)"}, {"id": key, "v": value}
    return canal(kind, "t", step, [image], old=None if old is None else [old], types=types, key=["id"], batch=step)  # type: ignore[list-item]


def test_a_soft_deleted_row_comes_back(stream: Stream) -> None:
    """By an UPDATE of a row that the mirror lacks. If it has the row, its DELETE never arrived."""
    back = {"_tidb_softdelete_time": "2026-11-21 08:11:33.000000"}
    deleted = [softly("INSERT", 2, "a", None), softly("DELETE", 3, "a", None)]
    stream.write_slice(10, *deleted, softly("UPDATE", 4, "back", None, old=back))
    stream.run()
    assert _verify(stream) == {"softly": (3, 1, 0)}
    stream.write_slice(20, softly("UPDATE", 14, "back", None, old=back))
    stream.run()
    assert _verify(stream) == {"softly": (1, 0, 1)}
    assert "columns _tidb_softdelete_time" in _gaps(stream)["softly"]


def test_a_rebuild(stream: Stream) -> None:
    """It ends the gap if what was missing has arrived late, and no other one."""
    lost = [put("b", 2, "1", "one"), update("b", 14, ("1", "uno"), ("1", "due"))]
    late = update("a", 3, ("1", "one"), ("1", "uno"))
    stream.write_slice(10, create("a", 1), create("b", 1), put("a", 2, "1", "one"), lost[0])
    stream.run()
    stream.write_slice(20, update("a", 14, ("1", "uno"), ("1", "due")), lost[1])
    stream.run()
    assert _verify(stream) == {"a": (2, 1, 1), "b": (2, 1, 1)}
    stream.write_slice(30, late)
    stream.run()
    rebuilder = Rebuilder(CutMaker(Lake(stream.spark, stream.paths), "rebuild", "UTC", 2, lambda line: None))
    rebuilder.rebuild(("db.a",))
    assert set(_gaps(stream)) == {"b"}
    rebuilder.rebuild()
    assert set(_gaps(stream)) == {"b"}
    assert stream.rows("a") == [(1, "due")]


def test_runs_verify_each_hour(stream: Stream) -> None:
    stream.write_slice(10, create("a", 1), put("a", 2, "1", "one"))
    stream.run()
    verifier = Verifier(stream.lake, CutSettings("UTC"), lambda line: None)
    verifier.verify_if_due("run", timedelta(hours=1))
    assert _totals(stream) == {}
    verifier.verify_if_due("run", timedelta())
    assert [one.proved for one in _totals(stream).values()] == [1]
    stream.write_slice(20, put("a", 12, "2", "two"))
    stream.run()
    for pause, proved in ((timedelta(hours=1), 1), (timedelta(), 2)):
        verifier.verify_if_due("run", pause)
        assert [one.proved for one in _totals(stream).values()] == [proved]


def test_a_run_reads_the_verifications_once(stream: Stream) -> None:
    """Each read takes requests to the store."""
    stream.write_slice(10, create("a", 1), put("a", 2, "1", "one"))
    stream.run()
    with patch.object(verification, "read_verifications", wraps=read_verifications) as read:
        verifier = Verifier(stream.lake, CutSettings("UTC"), lambda line: None)
        verifier.verify_if_due("run", timedelta())
        result = before_images_results(verifier.verified, verifier.contradicted(), (), {}, CHECKED)[0]
    assert (read.call_count, result.passed) == (1, True)
    assert verifier.verified == read_verifications(stream.lake)
    assert result.metadata["db.a"].value == "1 of 1 change(s) proved their row"


# ---- planted faults

_Change = tuple[str, int, str | None, str | None]
"""Operation, key, value before and after."""


def _random_changes(chance: random.Random, count: int, first_key: int) -> list[_Change]:
    """Changes of four rows, all values different."""
    rows: dict[int, str] = {}
    changes: list[_Change] = []
    for number in range(count):
        key, new = first_key + chance.randrange(4), f"v{number}"
        if key not in rows:
            changes.append(("INSERT", key, None, new))
        elif chance.random() < 0.7:
            changes.append(("UPDATE", key, rows[key], new))
        else:
            changes.append(("DELETE", key, rows.pop(key), None))
            continue
        rows[key] = new
    return changes


def _with_fault(chance: random.Random, changes: list[_Change]) -> list[_Change]:
    """One change dropped, doubled later, or swapped with the next one of its row. Its row is touched again."""
    kind = chance.choice(("dropped", "doubled", "swapped"))
    follows = {
        place: next((later for later in range(place + 1, len(changes)) if changes[later][1] == changes[place][1]), None)
        for place in range(len(changes))
    }
    # an equal INSERT may be a copy
    places = [
        place
        for place, later in follows.items()
        if later is not None and (kind != "doubled" or changes[place][0] != "INSERT")
    ]
    place = chance.choice(places)
    later, faulty = follows[place], list(changes)
    assert later is not None
    if kind == "dropped":
        del faulty[place]
    elif kind == "doubled":
        faulty.insert(later, changes[place])
    else:
        faulty[place], faulty[later] = changes[later], changes[place]
    return faulty


def _sent(table: str, changes: list[_Change], first: int) -> list[tuple[str, int]]:
    found = []
    for number, (op, key, before, after) in enumerate(changes):
        step = first + number + 2 * (number >= 8)  # the first eight are below a watermark
        old, new = (str(key), before), (str(key), after)
        makes = {
            "INSERT": put(table, step, *new),
            "DELETE": delete(table, step, *old),
            "UPDATE": update(table, step, old, new),
        }
        found.append(makes[op])
    return found


def _contradictions(changes: list[_Change]) -> int:
    """How many changes find another row than they replace."""
    rows: dict[int, str | None] = {}
    found = 0
    for _, key, before, after in changes:
        found += rows.get(key) != before
        rows[key] = after
    return found


def _counted(streams: list[list[_Change]]) -> int:
    """How many contradictions of a table are counted. If the first half of its changes has any, a row that the mirror lacks
    says nothing in the second half."""
    first = sum(_contradictions(changes[:8]) for changes in streams)
    hidden = 0
    for changes in streams:
        rows = {key: after for _, key, _, after in changes[:8]}
        earliest = {key: before for _, key, before, _ in reversed(changes[8:])}
        hidden += sum(rows.get(key) is None and before is not None for key, before in earliest.items())
    return sum(map(_contradictions, streams)) - (hidden if first else 0)


@pytest.mark.parametrize(("tables", "faults"), [(12, 1), pytest.param(20, 10, marks=pytest.mark.long)])
def test_planted_faults_are_named(stream: Stream, tables: int, faults: int) -> None:
    """Each table has so many faults, in rows of their own, and as many other tables have none. They are counted.

    Half of the changes are verified against mirrors.
    """
    chance, expected = random.Random(tables), Counter[str]()
    halves: tuple[list[tuple[str, int]], list[tuple[str, int]]] = ([], [])
    for number in range(tables):
        halves[0].extend(create(f"{name}_{number}", 1) for name in ("wrong", "right"))
        streams = []
        for first_key in range(0, 4 * faults, 4):
            changes = _random_changes(chance, 16, first_key)
            faulty = _with_fault(chance, changes)
            assert _contradictions(changes) < _contradictions(faulty)
            streams.append(faulty)
            for name, sent in ((f"wrong_{number}", faulty), (f"right_{number}", changes)):
                messages = _sent(name, sent, 2)
                halves[0].extend(messages[:8])
                halves[1].extend(messages[8:])
        expected[f"wrong_{number}"] = _counted(streams)
    found = Counter[str]()
    for half, end in zip(halves, (10, 30), strict=True):
        stream.write_slice(end, *half)
        stream.run()
        found.update({table: contradicted for table, (*_, contradicted) in _verify(stream).items()})
    assert +found == expected
    assert set(_gaps(stream)) == set(expected)
