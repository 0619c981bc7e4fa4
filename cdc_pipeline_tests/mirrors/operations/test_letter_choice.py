"""How an operator chooses dead letters, and the errors for malformed choices."""

from __future__ import annotations

import pytest

from cdc_pipeline.errors import TerminalError
from cdc_pipeline.mirrors.operations.letter_choice import DeadLetterChoice, PositionRange


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("shop/0@17", PositionRange("shop", 0, 17, 17)),
        ("shop/0@17-20", PositionRange("shop", 0, 17, 20)),
        ("shop/0@17–20", PositionRange("shop", 0, 17, 20)),  # as the checks print it
        ("a/b@c/3@0", PositionRange("a/b@c", 3, 0, 0)),
    ],
)
def test_positions(text: str, expected: PositionRange) -> None:
    assert PositionRange.parse(text) == expected


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("shop/0", "topic/partition@offset or topic/partition@first-last is expected"),
        ("shop@17", "is expected"),
        ("/0@17", "is expected"),
        ("shop/0@20-17", "17 lies before 20"),
        ("shop/0@9223372036854775808", "63"),
        ("shop/2147483648@1", "31 bits"),
    ],
)
def test_malformed_positions(text: str, said: str) -> None:
    with pytest.raises(TerminalError, match="is no position") as caught:
        PositionRange.parse(text)
    assert said in str(caught.value)
    for choice in ({"positions": (text,)}, {"replacements": {text: "{}"}}):
        with pytest.raises(TerminalError, match="is no position"):
            DeadLetterChoice(**choice)  # type: ignore[arg-type]


def test_choices_of_nothing_or_too_much() -> None:
    with pytest.raises(TerminalError, match="nothing is chosen: positions, rules, tables"):
        DeadLetterChoice()
    with pytest.raises(TerminalError, match=r"replacements: 't/0@1-2' names more than one record"):
        DeadLetterChoice(replacements={"t/0@1-2": "{}"})
