"""Combines many columns by a binary operator without a deep expression, which would overflow Java's stack."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from pyspark.sql import Column


def balanced(combine: Callable[[Column, Column], Column], columns: Iterable[Column], empty: Column) -> Column:
    """The columns combined by the associative operator `combine`, as a balanced tree; `empty` if there are none."""
    terms = list(columns)
    while len(terms) > 1:
        pairs = zip(terms[::2], terms[1::2], strict=False)
        terms = [*(combine(*pair) for pair in pairs), *terms[len(terms) // 2 * 2 :]]
    return terms[0] if terms else empty
