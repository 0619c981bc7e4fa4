"""Distributes tests to the shards of `make test-all`, and within a shard to the two processes of pytest-xdist.

The unit is the scope: the tests of a file, because they share its lakes, or those of a group (`pytest.mark.xdist_group`).
A test that is `long` or `apart` is its own group. `durations.json` has the seconds of each scope, per tier.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import mean

import pytest
from xdist.scheduler import LoadScopeScheduling

from cdc_pipeline_tests.support.tiers import TESTS

FILE = TESTS / "durations.json"
# Runs record here, because FILE must not change before the last shard has run.
NEW_FILE = TESTS / "durations.new.json"
CORE, ALL = "core", "all"
# The property of a test's reports with its scope: pytest-xdist removes the group from the node ids of reports.
SCOPE = "scope"

# CORE or ALL → scope → seconds
Durations = dict[str, dict[str, int]]


def scope(node: str) -> str:
    """The scope of a test by its node id: `folder/test_file.py`, or `folder/test_file.py@group`.

    pytest-xdist appends `@group` to the node id of a test that has the marker `xdist_group`.
    """
    file = node.removeprefix(f"{TESTS.name}/").split("::")[0]
    return f"{file}{node[node.rfind('@') :]}" if node.rfind("@") > node.rfind("]") else file


class ScopeScheduling(LoadScopeScheduling):
    """Sends all tests of a scope to one process."""

    def _split_scope(self, nodeid: str) -> str:
        return scope(nodeid)


def recorded(file: Path = FILE) -> Durations:
    found: Durations = json.loads(file.read_text(encoding="utf-8"))
    return found


def longest_first(scopes: Iterable[str], seconds: Mapping[str, int]) -> list[str]:
    """The scopes by descending duration. Unknown scopes are first, because a long one must not start last."""
    return sorted(set(scopes), key=lambda name: (-seconds.get(name, float("inf")), name))


@dataclass(frozen=True)
class Shard:
    """`number` of `count` shards, counted from 1."""

    number: int
    count: int

    @staticmethod
    def read(text: str) -> Shard:
        """Reads `2/6`. Raises ValueError for anything else."""
        number, _, count = text.partition("/")
        if not (number.isdecimal() and count.isdecimal() and 1 <= int(number) <= int(count)):
            raise ValueError(f"SHARD is {text!r}; expected NUMBER/COUNT such as 2/6")
        return Shard(int(number), int(count))

    def pick(self, scopes: Iterable[str], seconds: Mapping[str, int]) -> set[str]:
        """The scopes of this shard: in descending order each scope goes to the shard with the least seconds so far."""
        usual = mean(seconds.values()) if seconds else 1.0
        loads = [0.0] * self.count
        found = set()
        for name in longest_first(scopes, seconds):
            least = loads.index(min(loads))
            # at least 0.1, so that the scopes of zero seconds do not all go to one shard
            loads[least] += max(seconds.get(name, usual), 0.1)
            if least == self.number - 1:
                found.add(name)
        return found


class Recorder:
    """Sums the seconds of a run's tests by scope."""

    def __init__(self) -> None:
        self._seconds: defaultdict[str, float] = defaultdict(float)

    def add(self, report: pytest.TestReport) -> None:
        found = dict(report.user_properties).get(SCOPE, scope(report.nodeid))
        self._seconds[str(found)] += report.duration

    def merge(self, before: Durations, tier: str, files: Iterable[str]) -> Durations:
        """`before` with the seconds of this run, without the scopes whose file no longer exists."""
        known = set(files)
        found = {**before, tier: {**before.get(tier, {}), **{name: round(s) for name, s in self._seconds.items()}}}
        return {
            name: dict(sorted(_existing(scopes, known).items(), key=lambda entry: (-entry[1], entry[0])))
            for name, scopes in sorted(found.items())
        }

    def write(self, tier: str) -> None:
        files = (path.relative_to(TESTS).as_posix() for path in TESTS.rglob("test_*.py"))
        before = recorded(NEW_FILE if NEW_FILE.exists() else FILE)
        text = json.dumps(self.merge(before, tier, files), indent=2, ensure_ascii=False)
        NEW_FILE.write_text(text + "\n", encoding="utf-8")


def _existing(scopes: Mapping[str, int], files: set[str]) -> dict[str, int]:
    return {name: seconds for name, seconds in scopes.items() if name.split("@")[0] in files}
