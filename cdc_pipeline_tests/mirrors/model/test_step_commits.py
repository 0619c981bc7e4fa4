"""Commits of a cut have numbers that grow, whatever the number of its steps and of their parts."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from cdc_pipeline.errors import LakeError
from cdc_pipeline.mirrors.model.step_commits import CutCommits, cut_of_writers

if TYPE_CHECKING:
    from cdc_pipeline.mirrors.model.steps import Numbering


@pytest.mark.parametrize(("numbering", "parts"), [("wide", 100_000), ("hundreds", 100)])
def test_numbers_grow(numbering: Numbering, parts: int) -> None:
    one, two = (CutCommits("p", cut_id, {"cut": cut_id}, numbering) for cut_id in (41, 42))
    numbers = [
        one.step(0)(0).version,
        one.step(0)(parts - 1).version,
        one.step(1)(0).version,
        one.step(999_999)(parts - 1).version,
        two.step(0)(0).version,
    ]
    assert numbers == sorted(set(numbers))
    assert one.step(0).last == parts - 1
    assert one.step(3)(2, more=1).note == {"cut": 41, "step": 3, "more": 1}
    # what is found is noted by a writer of its own, before the part
    assert one.step(3).finding(2).app_id != one.step(3)(2).app_id
    writer = one.step(0)(0).app_id
    assert cut_of_writers("p", {writer: numbers[3], "cdc:other:steps": 10**17}) == 41
    assert cut_of_writers("p", {writer: numbers[4]}) == 42


def test_the_numbering_of_format_2_stays() -> None:
    """A cut that was begun with it is finished with it."""
    commit = CutCommits("p", 7, {}, "hundreds").step(3)(4)
    assert (commit.app_id, commit.version) == ("cdc:p:mirror", 7 * 10**8 + 3 * 100 + 4)
    both = {"cdc:p:mirror": 1_200 * 10**8, "cdc:p:steps": 1_201 * 10**11}
    assert (cut_of_writers("p", both), cut_of_writers("p", {}), cut_of_writers("p", {"cdc:p:mirror": 5 * 10**8})) == (
        1_201,
        0,
        5,
    )


def test_what_has_no_number_is_named() -> None:
    commits = CutCommits("p", 7, {"cut": 7})
    commits.step(1_000_000)  # the first after the last
    with pytest.raises(LakeError, match=r"step 1000001 of cut 7 has no number: a cut has up to 1000000 steps"):
        commits.step(1_000_001)
    with pytest.raises(LakeError, match=r"step 2 of cut 7 needs more than 100000 commits: commit 100000 has no number"):
        commits.step(2)(100_000)
    with pytest.raises(LakeError, match=r"step 2 of cut 7 needs more than 100 commits"):
        CutCommits("p", 7, {"cut": 7}, "hundreds").step(2)(100)
    with pytest.raises(LakeError, match="up to 92233719 cuts"):
        CutCommits("p", 92_233_720, {}).step(0)
