"""The two ways in which a cut writes rows to a small mirror: the driver rewrites it, or Spark merges into it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from unittest.mock import patch

from cdc_pipeline.lake import small_tables

REWRITTEN, MERGED = "rewritten", "merged"


@contextlib.contextmanager
def written_by(way: str) -> Iterator[None]:
    """Within the context, cuts write small mirrors in this way."""
    # no table is that small
    with patch.object(small_tables, "MAX_BYTES", -1) if way == MERGED else contextlib.nullcontext():
        yield
