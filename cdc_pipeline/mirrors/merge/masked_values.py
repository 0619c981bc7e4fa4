"""Masks values before they are written to a mirror.

The salt is not a literal, because Spark shows query plans in its UI, in event logs and in errors. It is joined as a table of
one row. A plan contains only its column names.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import TypeAlias

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, BinaryType, DataType, DecimalType

from cdc_pipeline.mirrors.merge.typed_rows import value_column
from cdc_pipeline.mirrors.model.masks import HASH, Mask
from cdc_pipeline.mirrors.model.state import METADATA, MirrorState
from cdc_pipeline.mysql.model.quoted_names import quoted
from cdc_pipeline.mysql.types.spark_types import spark_type
from cdc_pipeline.spark.small_frames import small_frame

MaskedCells: TypeAlias = "Mapping[str, tuple[DataType, Mask]]"
"""Columns of a frame to be masked, each with its type in the frame and its mask."""

_ZEROS = r"\.0+$|(\.\d*[1-9])0+$"
_INNER, _OUTER = "\0mask_inner", "\0mask_outer"
_BLOCK = 64
"""Block size of SHA-256 in bytes, to which HMAC pads its key."""


def masked_columns(state: MirrorState) -> MaskedCells:
    """The columns of upstream that this mirror masks."""
    masks = dict(state.masks)
    return {
        column.name: (spark_type(column.type), masks[column.name])
        for column in state.schema.columns
        if column.name in masks
    }


def masked_cells(state: MirrorState) -> MaskedCells:
    """The columns of `typed_rows` that this mirror masks."""
    masked = masked_columns(state)
    return {value_column(i): masked[name] for i, name in enumerate(state.schema.column_names) if name in masked}


def with_masks(frame: DataFrame, cells: MaskedCells, salt: str) -> DataFrame:
    """The frame with these columns masked. Hashes are STRING; `null` keeps the column's type; NULL stays NULL."""
    if not cells:
        return frame
    keyed = with_pads(frame, salt) if any(mask == HASH for _, mask in cells.values()) else frame
    return keyed.select(
        *(
            masked(F.col(quoted(name)), *cells[name]).alias(name) if name in cells else quoted(name)
            for name in frame.columns
        )
    )


def with_pads(frame: DataFrame, salt: str) -> DataFrame:
    """The frame with the columns that `masked` needs for hashes."""
    pads = small_frame(frame.sparkSession, [tuple(map(bytes, _pads(salt)))], f"`{_INNER}` BINARY, `{_OUTER}` BINARY")
    return frame.crossJoin(F.broadcast(pads))


def masked(cell: Column, kind: DataType, mask: Mask) -> Column:
    """The masked value of a cell of this type, in a frame of `with_pads`."""
    return _hash(cell, kind, F.col(quoted(_INNER)), F.col(quoted(_OUTER))) if mask == HASH else F.lit(None).cast(kind)


def _pads(salt: str) -> tuple[bytearray, bytearray]:
    """The inner and the outer padded key of HMAC (RFC 2104)."""
    key = salt.encode()
    key = (hashlib.sha256(key).digest() if len(key) > _BLOCK else key).ljust(_BLOCK, b"\0")
    return bytearray(byte ^ 0x36 for byte in key), bytearray(byte ^ 0x5C for byte in key)


def _hash(cell: Column, kind: DataType, inner: Column, outer: Column) -> Column:
    digest = F.unhex(F.sha2(F.concat(inner, _bytes(cell, kind)), 256))
    return F.sha2(F.concat(outer, digest), 256)


def _bytes(cell: Column, kind: DataType) -> Column:
    """The bytes to hash: binary as it is, a vector as JSON, other values as the text that Spark prints in UTC.

    A DECIMAL is without trailing zeros, so that its hash stays the same when the column gets a larger scale.
    """
    if isinstance(kind, BinaryType):
        return cell
    text = F.to_json(cell) if isinstance(kind, ArrayType) else cell.cast("string")
    return (F.regexp_replace(text, _ZEROS, "$1") if isinstance(kind, DecimalType) else text).cast("binary")


def folded_images(rows: DataFrame, columns: int) -> DataFrame:
    """Combines rows of a keyless table that are equal after masking: their summed `delta` and the newest metadata."""
    images = [value_column(index) for index in range(columns)]
    newest = F.max(F.struct(*METADATA.names)).alias("newest")
    folded = rows.groupBy(*images).agg(F.sum("delta").alias("delta"), newest)
    return folded.select(*images, "delta", *(F.col(f"newest.{name}").alias(name) for name in METADATA.names))
