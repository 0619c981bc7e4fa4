"""A query runs again when its table has another version."""

from __future__ import annotations

from cdc_pipeline.lake.recent_answers import RecentAnswers


def test_a_query_runs_once_per_version_of_its_table() -> None:
    recent, ran = RecentAnswers(), list[object]()

    def run(name: str, version: object) -> object:
        return recent.cached_query(name, version, lambda: (ran.append((name, version)), (name, version))[1])

    calls = [("a", None), ("a", None), ("b", 1), ("a", 1), ("b", 1), ("b", (1, "more")), ("b", (1, "more")), ("a", 2)]
    assert [run(*call) for call in calls] == calls
    assert ran == [("a", None), ("b", 1), ("a", 1), ("b", (1, "more")), ("a", 2)]
