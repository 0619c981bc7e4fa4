"""How the suite itself is told: its stages, the order of its files."""

from __future__ import annotations

import os
import re
import subprocess
from typing import Any

import pytest

from cdc_pipeline.spark.java import JavaNotFoundError, require_java
from cdc_pipeline_tests.support import durations, stages

ROOT = durations.TESTS.parent


class _Item:
    """As much of a collected test as its stage is told by."""

    def __init__(self, fixtures: tuple[str, ...] = (), *marks: str) -> None:
        self.fixturenames = fixtures
        self.marks = list(marks)

    def get_closest_marker(self, name: str) -> str | None:
        return name if name in self.marks else None

    def add_marker(self, mark: Any) -> None:
        self.marks.append(mark.name)


@pytest.mark.parametrize(
    ("item", "stage"),
    [
        (_Item(), stages.FAST),
        (_Item(("tmp_path", "paths")), stages.FAST),
        (_Item(("tmp_path", "spark")), stages.SPARK),
        (_Item(("kafka",)), stages.SPARK),
        (_Item((), "jvm"), stages.SPARK),
        (_Item(("spark",), "processes"), stages.PROCESSES),
        (_Item((), "processes"), stages.PROCESSES),
    ],
)
def test_a_test_is_of_one_stage(item: Any, stage: str) -> None:
    stages.mark_stages([item])
    assert stages.stage_of(item.marks) == stage
    # and the expressions of the Makefile let it into that stage alone
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    expressions = dict(
        re.findall(r"^test-(fast|spark|processes):.*\n\t\$\(call pytest,(.*)\)$", makefile, re.MULTILINE)
    )
    names = {"jvm": "jvm" in item.marks, "processes": "processes" in item.marks, "long": False}
    assert [name for name, expression in expressions.items() if eval(expression, {}, names)] == [stage]
    assert not any(eval(expression, {}, {**names, "long": True}) for expression in expressions.values())


def test_ci_runs_each_stage_of_make_test_once() -> None:
    (wanted,) = re.findall(r"^test: ([a-z -]*?) ##", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    found = re.findall(
        r'^step "make (test.*?)" make \1$', (ROOT / ".ci" / "run").read_text(encoding="utf-8"), re.MULTILINE
    )
    assert found == wanted.split()
    assert len(found) == 3


def test_a_test_of_the_fast_stage_finds_no_java() -> None:
    with pytest.raises(JavaNotFoundError, match=stages.NO_JAVA):
        require_java()
    assert (
        subprocess.run(["sh", "-c", "echo $JAVA_HOME"], capture_output=True, text=True).stdout.strip() == stages.NO_JAVA
    )


@pytest.mark.jvm
def test_another_one_finds_the_java_that_there_is() -> None:
    assert os.environ.get("JAVA_HOME") != stages.NO_JAVA
    require_java()


def test_the_longest_come_first_and_before_them_what_is_not_known() -> None:
    known = {"fast": {"a.py": 1, "b.py": 30}, "spark": {"c.py": 500, "a.py": 60}}
    files = ["a.py", "b.py", "c.py"]
    assert sorted(files, key=lambda file: durations.place(known, "fast", file)) == ["c.py", "b.py", "a.py"]
    assert sorted(files, key=lambda file: durations.place(known, "spark", file)) == ["b.py", "c.py", "a.py"]
    assert sorted(files, key=lambda file: durations.place(known, "processes", file)) == files


def test_what_a_run_took_replaces_what_was_known_of_its_files() -> None:
    recorder = durations.Recorder()
    for seconds in (0.4, 1.2):
        recorder.add("fast", "a.py", seconds)
    recorder.add("processes", "k.py", 70)
    before = {"fast": {"gone.py": 9, "a.py": 5, "b.py": 3}, "spark": {"a.py": 7}}
    found = recorder.merged(before, ["a.py", "b.py", "k.py"])
    assert found == {"fast": {"b.py": 3, "a.py": 2}, "processes": {"k.py": 70}, "spark": {"a.py": 7}}
    assert list(found["fast"]) == ["b.py", "a.py"]
    assert before["fast"]["a.py"] == 5


def test_recorded_files_are_there() -> None:
    recorded = durations.recorded()
    assert set(recorded) <= {stages.FAST, stages.SPARK, stages.PROCESSES}
    assert [file for known in recorded.values() for file in known if not (durations.TESTS / file).exists()] == []
