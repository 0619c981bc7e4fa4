"""Columns that identify a row change, and columns that are equal in all copies of one change."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from cdc_pipeline.positions import POSITION

if TYPE_CHECKING:
    from pyspark.sql import Column

ROW_POSITION = (*POSITION, "row")
"""Identifies one row of `change_log`."""
PARTITION = ("topic", "partition")
CHANGE = ("database", "table", "commit_ts", "op", "images")
"""Equal in all copies of a change. `images` is the `image_hash` of both images."""
COMMIT = ("database", "table", "commit_ts", *PARTITION)
"""Identifies the changes of one table and commit in one partition."""


def image_hash(*images: str) -> Column:
    """A 64-bit hash of row images, independent of the order of their columns. `images` names the map columns."""
    parts: list[Column] = []
    for image in images:
        entries = F.array_sort(F.map_entries(image))
        parts += [F.col(image).isNull(), F.transform(entries, _with_null_flag)]
    return F.xxhash64(*parts)


def _with_null_flag(entry: Column) -> Column:
    """`xxhash64` skips NULLs: without the flag {a: null, b: x} and {a: x, b: null} could have the same hash."""
    return F.struct(entry["key"], entry["value"].isNull(), entry["value"])
