"""What makes two row changes copies of one: the same table, time, operation and images."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F

if TYPE_CHECKING:
    from pyspark.sql import Column

POSITION = ("topic", "partition", "offset", "row")
PARTITION = ("topic", "partition")
CHANGE = ("database", "table", "commit_ts", "op", "images")
"""`images` is `image_hash`."""
COMMIT = ("database", "table", "commit_ts", *PARTITION)


def image_hash(*images: str) -> Column:
    """One number for the images, whatever the order of their columns."""
    parts: list[Column] = []
    for image in images:
        entries = F.array_sort(F.map_entries(image))
        parts += [F.col(image).isNull(), F.transform(entries, _with_null_mark)]
    return F.xxhash64(*parts)


def _with_null_mark(entry: Column) -> Column:
    """A hash passes over NULLs: without the mark {a: null, b: x} and {a: x, b: null} could be one."""
    return F.struct(entry["key"], entry["value"].isNull(), entry["value"])
