"""Reading plans and batches, without broker and Spark."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdc_pipeline.errors import SourceError
from cdc_pipeline.sources.kafka.broker import BrokerPartition, BrokerTopic
from cdc_pipeline.sources.kafka.positions import Positions, TopicPartition, TopicSelection, by_topic
from cdc_pipeline.sources.kafka.reading_plan import PlannedRange, ReadingPlan, reading_plan, split_plan
from cdc_pipeline.sources.source import OpenTransaction


def _topic(*partitions: tuple[int, int], topic_id: str = "one", held: int = 0) -> BrokerTopic:
    """`partitions`: first and end offset of each. `held`: offsets of each that open transactions hold back."""
    found = {number: BrokerPartition(first, end, end + held) for number, (first, end) in enumerate(partitions)}
    return BrokerTopic(topic_id, found)


def _known(offsets: dict[TopicPartition, int], **ids: str) -> Positions:
    return Positions(offsets, ids or {topic: "one" for topic, _ in offsets})


def _read(plan: ReadingPlan) -> dict[TopicPartition, tuple[int, int]]:
    return {planned.topic_partition: (planned.first, planned.end) for planned in plan.ranges if planned.offsets}


# ---- planned ranges


def test_a_first_run_begins_at_the_declared_position() -> None:
    offered = {"a": _topic((3, 10), (0, 0)), "b": _topic((0, 5))}
    plan = reading_plan(TopicSelection(), None, offered, {("a", 0): 7, ("a", 1): 0, ("b", 0): 5})
    assert _read(plan) == {("a", 0): (7, 10)}
    assert plan.positions == Positions({("a", 0): 7, ("a", 1): 0, ("b", 0): 5}, {"a": "one", "b": "one"})
    assert plan.changed


def test_a_later_run_goes_on() -> None:
    known = _known({("a", 0): 4, ("a", 1): 9})
    plan = reading_plan(TopicSelection(), known, {"a": _topic((0, 6), (0, 9))}, {})
    assert (_read(plan), plan.changed, plan.lost) == ({("a", 0): (4, 6)}, False, ())


def test_what_appears_later_is_read_from_its_first_record() -> None:
    known = _known({("a", 0): 6})
    plan = reading_plan(TopicSelection(), known, {"a": _topic((0, 6), (2, 5)), "b": _topic((0, 1))}, {})
    assert _read(plan) == {("a", 1): (2, 5), ("b", 0): (0, 1)}
    assert plan.changed
    # of a topic that is new to the lake, it is not known which records it has had
    assert plan.lost == (("a", 1, 0, 2),)
    plan = reading_plan(TopicSelection(), known, {"a": _topic((0, 6)), "b": _topic((7, 9))}, {})
    assert (_read(plan), plan.lost) == ({("b", 0): (7, 9)}, ())


def test_a_run_reads_no_further_than_it_was_asked() -> None:
    known = _known({("a", 0): 4, ("a", 1): 1})
    offered = {"a": _topic((0, 60), (0, 9), (0, 8))}
    assert _read(reading_plan(TopicSelection(), known, offered, {}, {"a": {"0": 10}})) == {("a", 0): (4, 10)}
    assert _read(reading_plan(TopicSelection(), known, offered, {}, {"a": {"0": 3, "1": 99}})) == {("a", 1): (1, 9)}


def test_an_ingested_range_is_nothing_to_do() -> None:
    plan = reading_plan(TopicSelection(), _known({("a", 0): 6}), {"a": _topic((0, 9))}, {}, {"a": {"0": 6}})
    assert (_read(plan), plan.changed) == ({}, False)


# ---- the lake cannot continue: the error names topic, partition, both offsets and the setting to write

_KNOWN = _known({("a", 0): 5, ("a", 1): 7})
_STOPS: dict[str, tuple[TopicSelection, Positions, dict[str, BrokerTopic], list[str]]] = {
    "expired": (
        TopicSelection(),
        _KNOWN,
        {"a": _topic((8, 20), (0, 9))},
        ["at offset 5", "begins at 8", "3 offsets", "source.resume_at: {a: {0: 8}}", "topic a, partition 0, offset 5"],
    ),
    "expired, and declared to continue where nothing is": (
        TopicSelection(resume_at={("a", 0): 6}),
        _KNOWN,
        {"a": _topic((8, 20), (0, 9))},
        ["source.resume_at: {a: {0: 8}}", "it is 6 now", "8 to 20"],
    ),
    "lost by the broker": (
        TopicSelection(),
        _KNOWN,
        {"a": _topic((0, 5), (0, 3))},
        ["at offset 7", "ends at 3", "source.made_anew: {a: a@2}", "topic a, partition 1, offset 7"],
    ),
    "made anew": (
        TopicSelection(),
        _KNOWN,
        {"a": _topic((0, 2), (0, 1), topic_id="two")},
        [
            "deleted and recreated",
            "expected offset 5",
            "id one",
            "id two",
            "offsets 0 to 2",
            "source.made_anew: {a: a@2}",
        ],
    ),
    "made anew, and already as long": (
        TopicSelection(),
        _KNOWN,
        {"a": _topic((0, 50), (0, 50), topic_id="two")},
        ["deleted and recreated", "expected offset 5"],
    ),
    "made anew once more": (
        TopicSelection(made_anew={"a": "a@2"}),
        _known({("a", 0): 5, ("a@2", 0): 3}),
        {"a": _topic((0, 50), topic_id="two")},
        ["topic 'a'", "source.made_anew: {a: a@3}"],
    ),
    "recreated, as its offsets show": (
        TopicSelection(made_anew={"a": "a@2"}),
        Positions({("a@2", 0): 30}),
        {"a": _topic((0, 2))},
        ["expected to continue at offset 30", "ends at 2", "source.made_anew: {a: a@3}"],
    ),
    "gone": (
        TopicSelection(),
        _known({("a", 0): 5, ("b", 1): 4, ("b", 0): 3}),
        {"a": _topic((0, 5))},
        ["topic 'b'", "partition 0 up to offset 3", "source.ended: [b]"],
    ),
}


@pytest.mark.parametrize("case", _STOPS)
def test_where_the_lake_stops(case: str) -> None:
    selection, known, offered, parts = _STOPS[case]
    with pytest.raises(SourceError) as error:
        reading_plan(selection, known, offered, {})
    assert [part for part in parts if part not in str(error.value)] == []


def test_a_start_that_the_broker_has_not() -> None:
    with pytest.raises(SourceError, match=r"source.start names offset 11, but the broker has offsets 0 to 10"):
        reading_plan(TopicSelection(), None, {"a": _topic((0, 10))}, {("a", 0): 11})


# ---- the lake continues


def test_expired_records_are_given_up_by_name() -> None:
    plan = reading_plan(TopicSelection(resume_at={("a", 0): 9}), _KNOWN, {"a": _topic((8, 20), (0, 9))}, {})
    assert plan.lost == (("a", 0, 5, 9),)
    assert _read(plan) == {("a", 0): (9, 20), ("a", 1): (7, 9)}
    assert plan.changed


def test_resume_at_does_nothing_where_the_lake_can_go_on() -> None:
    plan = reading_plan(TopicSelection(resume_at={("a", 0): 1}), _KNOWN, {"a": _topic((0, 6), (0, 7))}, {})
    assert (plan.lost, _read(plan)) == ((), {("a", 0): (5, 6)})


def test_a_recreated_topic_is_a_new_topic_in_the_lake() -> None:
    selection = TopicSelection(made_anew={"a": "a@2"})
    plan = reading_plan(selection, _KNOWN, {"a": _topic((0, 2), topic_id="two")}, {})
    assert _read(plan) == {("a@2", 0): (0, 2)}
    assert [planned.source for planned in plan.ranges] == ["a"]
    assert plan.positions == Positions({**_KNOWN.next_offsets, ("a@2", 0): 0}, {"a": "one", "a@2": "two"})
    assert selection.ended_in_lake == {"a"}
    # the lake was at offset 5 and 7 of the deleted topic, which may have had more records
    assert plan.lost == (("a", 0, 5, 5), ("a", 1, 7, 7))
    again = reading_plan(selection, plan.positions, {"a": _topic((0, 2), topic_id="two")}, {})
    assert again.lost == ()
    third = TopicSelection(made_anew={"a": "a@3"}, ended=frozenset({"a@2"}))
    plan = reading_plan(third, plan.positions, {"a": _topic((2, 3), topic_id="three")}, {})
    assert plan.lost == (("a@2", 0, 0, 0), ("a@3", 0, 0, 2))


def test_an_ended_topic_is_missed_by_nobody() -> None:
    known = _known({("a", 0): 5, ("b", 0): 3})
    plan = reading_plan(TopicSelection(ended=frozenset({"b"})), known, {"a": _topic((0, 6)), "b": _topic((0, 9))}, {})
    assert _read(plan) == {("a", 0): (5, 6)}


# ---- transactions


def test_a_run_reads_to_the_last_stable_offset() -> None:
    known = _known({("a", 0): 4, ("a", 1): 9})
    plan = reading_plan(TopicSelection(), known, {"a": _topic((0, 6), (0, 9), held=3)}, {}, {"a": {"0": 99, "1": 99}})
    assert _read(plan) == {("a", 0): (4, 6)}
    assert plan.open_transactions == (OpenTransaction("a", 0, 6, 9), OpenTransaction("a", 1, 9, 12))
    assert not plan.changed


def test_a_lake_that_has_read_uncommitted_records_continues() -> None:
    plan = reading_plan(TopicSelection(), _known({("a", 0): 8}), {"a": _topic((0, 6), held=3)}, {})
    assert (_read(plan), plan.positions.next_offsets, plan.lost) == ({}, {("a", 0): 8}, ())
    plan = reading_plan(TopicSelection(), None, {"a": _topic((0, 6), held=3)}, {("a", 0): 8})
    assert (_read(plan), plan.positions.next_offsets) == ({}, {("a", 0): 8})


# ---- batches


@given(
    st.lists(st.tuples(st.integers(0, 1000), st.integers(0, 5000)), min_size=1, max_size=8),
    st.integers(1, 3000),
)
def test_batches_have_each_offset_once_in_order_and_are_bounded(ranges: list[tuple[int, int]], most: int) -> None:
    planned_ranges = tuple(
        PlannedRange("t", "t", number, first, first + size) for number, (first, size) in enumerate(ranges)
    )
    reached = {number: first for number, (first, _) in enumerate(ranges)}
    for batch in split_plan(ReadingPlan(Positions(), planned_ranges, (), False), most):
        assert 0 < sum(planned.offsets for planned in batch) <= most
        for planned in batch:
            assert planned.offsets > 0
            assert planned.first == reached[planned.partition]
            reached[planned.partition] = planned.end
    assert reached == {number: first + size for number, (first, size) in enumerate(ranges)}


def test_partitions_stay_abreast() -> None:
    planned_ranges = (PlannedRange("t", "t", 0, 0, 9000), PlannedRange("t", "t", 1, 0, 1000))
    first, *_ = split_plan(ReadingPlan(Positions(), planned_ranges, (), False), 1000)
    assert [(planned.partition, planned.offsets) for planned in first] == [(0, 900), (1, 100)]


# ---- positions


@given(st.dictionaries(st.tuples(st.text(max_size=5), st.integers(0, 300)), st.integers(0, 2**62)))
def test_positions_survive_their_note(offsets: dict[TopicPartition, int]) -> None:
    positions = Positions(offsets, {topic: "id" for topic, _ in offsets})
    assert Positions.from_note({"run_id": "r", **positions.to_note()}) == positions


def test_a_note_of_files_says_nothing_of_positions() -> None:
    assert Positions.from_note({"batch": 1, "run_id": "r", "offsets": []}) is None
    assert Positions.from_note(None) is None


def test_offsets_as_spark_wants_them() -> None:
    assert by_topic({("b", 10): 1, ("b", 9): 2, ("a", 0): 3}) == {"a": {"0": 3}, "b": {"9": 2, "10": 1}}
