"""Sources of the model's decisions: Hypothesis, or a seed that can be kept as a regression case."""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import TypeVar

from hypothesis import strategies as st
from hypothesis.strategies import DrawFn

T = TypeVar("T")


class Choices(ABC):
    """Decisions, one number each. Smaller numbers give simpler histories."""

    @abstractmethod
    def integer(self, low: int, high: int) -> int:
        """A number from `low` to `high`, both inclusive."""

    def chance(self, probability: float) -> bool:
        return self.integer(0, 99) >= 100 - round(100 * probability)

    def pick(self, options: Sequence[T]) -> T:
        return options[self.integer(0, len(options) - 1)]

    def attempts(self, options: Sequence[T]) -> Iterator[T]:
        """Some random options, then all options in order. For options that may not apply."""
        for _ in range(3):
            yield self.pick(options)
        yield from options


class Seeded(Choices):
    """Decisions from a seed."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def integer(self, low: int, high: int) -> int:
        return low + int(self._random.random() * (high - low + 1))


class Drawn(Choices):
    """Decisions that Hypothesis makes, and shrinks when a test fails."""

    def __init__(self, draw: DrawFn) -> None:
        self._draw = draw

    def integer(self, low: int, high: int) -> int:
        return self._draw(st.integers(low, high)) if low < high else low
