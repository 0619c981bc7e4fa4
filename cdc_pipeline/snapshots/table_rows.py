"""Rows of a data file as Arrow batches, one text column per column of the data."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa  # type: ignore[import-untyped]

from cdc_pipeline.snapshots.cell_texts import Cells, Form, UnreadableCellError
from cdc_pipeline.snapshots.files import DataFile
from cdc_pipeline.snapshots.row_text import Row, Taken

_BATCH_BYTES = 4 << 20


@dataclass(frozen=True)
class RowBatch:
    first_row: int
    """The number of the first row in its file, from 1."""
    texts: pa.RecordBatch
    """A column of strings per column of the data, in the order of the data."""


@dataclass(frozen=True)
class BatchWriter:
    """Converts rows to batches."""

    file: DataFile
    cells: Sequence[Cells]
    unescapes: Sequence[Callable[[Sequence[bytes | None]], Sequence[bytes | None]]]
    """Per column, of its values."""
    bytes_are_hex: bool
    """Whether the usual form of a binary value is hexadecimal digits: `x'…'`."""

    def batch(self, rows: Sequence[Row], first_row: int) -> RowBatch:
        """Raises SourceError for a value that is not in its character set, with row and column."""
        groups = list(zip(*rows, strict=True))
        arrays = []
        for cells, unescape, usual, other in zip(self.cells, self.unescapes, groups[::2], groups[1::2], strict=True):
            try:
                arrays.append(self._texts(cells, unescape, usual, other))
            except UnreadableCellError as error:
                raise self.file.error(
                    f"{error}. The export or the definition beside it is damaged, or upstream has stored such bytes: "
                    "repair the value and repeat the export",
                    first_row + error.index,
                ) from error
        return RowBatch(first_row, pa.RecordBatch.from_arrays(arrays, [cells.name for cells in self.cells]))

    def _texts(
        self,
        cells: Cells,
        unescape: Callable[[Sequence[bytes | None]], Sequence[bytes | None]],
        usual: Sequence[bytes | None],
        other: Sequence[bytes | None],
    ) -> pa.Array:
        if cells.form is Form.BYTES and self.bytes_are_hex:
            digits = [None if value is None else value.lower() for value in usual]
            for index, value in enumerate(digits):
                if value is not None and len(value) % 2:
                    raise UnreadableCellError(f"column {cells.name!r} has an odd number of hexadecimal digits", index)
            texts = pa.array(digits, pa.string())
        else:
            texts = cells.texts(unescape(usual))
        return cells.literal_texts(other, texts) if any(other) else texts


def batches(taken: Iterator[Taken], writer: BatchWriter, rows_per_batch: int) -> Iterator[RowBatch]:
    """Collects rows that follow each other to batches of this size, or of 4 MB."""
    waiting: list[Row] = []
    first = size = 0
    for more in taken:
        first = first if waiting else more.first
        waiting += more.rows
        size += more.size
        if waiting and (len(waiting) >= rows_per_batch or size >= _BATCH_BYTES):
            yield writer.batch(waiting, first)
            waiting, size = [], 0
    if waiting:
        yield writer.batch(waiting, first)
