"""Masked values, made before anything of them is written to a mirror.

The salt must not stand in a plan: Spark shows plans in its UI, in event logs and in errors. It comes as a table of one row,
of which a plan has the columns' names only.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, TypeAlias

from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, BinaryType, DataType, DecimalType

from cdc_pipeline.mirrors.model.masks import HASH, Mask
from cdc_pipeline.mirrors.model.state import TRACE
from cdc_pipeline.mysql.model.quoted_names import quoted, unused
from cdc_pipeline.mysql.types.spark_types import spark_type
from cdc_pipeline.spark.small_frames import small_frame

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import Column, DataFrame

    from cdc_pipeline.mirrors.model.state import MirrorState

MaskedCells: TypeAlias = "Mapping[str, tuple[DataType, Mask]]"
"""Columns of a frame that has them in clear, each with its type there and how it is masked."""

_ZEROS = r"\.0+$|(\.\d*[1-9])0+$"
_BLOCK = 64
"""Bytes of a block of SHA-256, which HMAC fills up its key to."""


def masked_cells(state: MirrorState) -> MaskedCells:
    """The cells of `merge_rows.typed_rows` that are to be masked for this mirror."""
    masks = dict(state.masks)
    return {
        f"c{place}": (spark_type(column.type), masks[column.name])
        for place, column in enumerate(state.schema.columns)
        if column.name in masks
    }


def with_masks(frame: DataFrame, cells: MaskedCells, salt: str) -> DataFrame:
    """The frame with these columns masked: hashes are STRING, what is NULL is of its own type. NULL stays NULL."""
    if not cells:
        return frame
    inner, outer = (unused(name, frame.columns) for name in ("mask_inner", "mask_outer"))
    keyed = frame
    if any(how == HASH for _, how in cells.values()):
        pads = small_frame(frame.sparkSession, [tuple(map(bytes, _pads(salt)))], f"{inner} BINARY, {outer} BINARY")
        keyed = frame.crossJoin(F.broadcast(pads))
    columns = []
    for name in frame.columns:
        cell = F.col(quoted(name))
        if name in cells:
            kind, how = cells[name]
            cell = _hashed(cell, kind, F.col(inner), F.col(outer)) if how == HASH else F.lit(None).cast(kind)
        columns.append(cell.alias(name))
    return keyed.select(*columns)


def _pads(salt: str) -> tuple[bytearray, bytearray]:
    """The key of HMAC (RFC 2104) as it stands before the value, and before the hash of both."""
    key = salt.encode()
    key = (hashlib.sha256(key).digest() if len(key) > _BLOCK else key).ljust(_BLOCK, b"\0")
    return bytearray(byte ^ 0x36 for byte in key), bytearray(byte ^ 0x5C for byte in key)


def _hashed(cell: Column, kind: DataType, inner: Column, outer: Column) -> Column:
    digest = F.unhex(F.sha2(F.concat(inner, _bytes(cell, kind)), 256))
    return F.sha2(F.concat(outer, digest), 256)


def _bytes(cell: Column, kind: DataType) -> Column:
    """What is hashed of a value: bytes as they are, all else as the text that Spark prints in UTC, a vector as JSON. A
    DECIMAL has no zeros at its end: its text is the same when the column gets more digits."""
    if isinstance(kind, BinaryType):
        return cell
    text = F.to_json(cell) if isinstance(kind, ArrayType) else cell.cast("string")
    return (F.regexp_replace(text, _ZEROS, "$1") if isinstance(kind, DecimalType) else text).cast("binary")


def folded_images(rows: DataFrame, columns: int) -> DataFrame:
    """Rows of a table without a key that are equal once they are masked, as one: their net number, and the newest trace."""
    images = [f"c{place}" for place in range(columns)]
    newest = F.max(F.struct(*TRACE.names)).alias("newest")
    folded = rows.groupBy(*images).agg(F.sum("delta").alias("delta"), newest)
    return folded.select(*images, "delta", *(F.col(f"newest.{name}").alias(name) for name in TRACE.names))
