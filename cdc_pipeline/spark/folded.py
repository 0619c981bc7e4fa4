"""Many columns as one expression that is not deep: of a thousand one inside another Java's stack has no room."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from pyspark.sql import Column


def folded(combined: Callable[[Column, Column], Column], columns: Iterable[Column], empty: Column) -> Column:
    """All of the columns by an operator of which it does not matter how they are grouped; `empty` where there are none."""
    left = list(columns)
    while len(left) > 1:
        pairs = zip(left[::2], left[1::2], strict=False)
        left = [*(combined(*pair) for pair in pairs), *left[len(left) // 2 * 2 :]]
    return left[0] if left else empty
