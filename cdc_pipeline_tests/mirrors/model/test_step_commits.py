"""Commit versions of a cut grow, whatever the number of its steps and of their parts."""

from __future__ import annotations

import pytest

from cdc_pipeline.errors import LakeError
from cdc_pipeline.mirrors.model.step_commits import CutCommits


def test_numbers_grow() -> None:
    one, two = (CutCommits("p", cut_id, {"cut": cut_id}) for cut_id in (41, 42))
    numbers = [
        one.step(0)(0).version,
        one.step(0)(99_999).version,
        one.step(1)(0).version,
        one.step(999_999)(99_999).version,
        two.step(0)(0).version,
    ]
    assert numbers == sorted(set(numbers))
    assert one.step(0).last == 99_999
    assert one.step(3)(2).note == {"cut": 41, "step": 3}
    # gaps are committed before the part, by a separate writer
    assert one.step(3).for_gaps(2).app_id != one.step(3)(2).app_id


def test_what_has_no_number_is_named() -> None:
    commits = CutCommits("p", 7, {"cut": 7})
    commits.step(1_000_000)  # one more than the last
    with pytest.raises(
        LakeError, match=r"step 1000001 of cut 7 has no commit version: a cut has at most 1000000 steps"
    ):
        commits.step(1_000_001)
    with pytest.raises(
        LakeError, match=r"step 2 of cut 7 needs more than 100000 commits: commit 100000 has no version"
    ):
        commits.step(2)(100_000)
    with pytest.raises(LakeError, match="at most 92233719 cuts"):
        CutCommits("p", 92_233_720, {}).step(0)
