"""Finds rows in text by one regular expression for a whole row. Rows follow each other without a gap, or an error names the
first byte that is not a row: no value is parsed wrongly in silence."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

from cdc_pipeline.snapshots.files import BLOCK_BYTES, DataFile, TextStream

Row = tuple[bytes | None, ...]
"""Two groups per column: the usual form of a value without its quotes, and another form as written. NULL has neither."""
_MAX_QUOTED = 60


class Taken(NamedTuple):
    """Rows that follow each other."""

    rows: list[Row]
    first: int
    """The number of the first row."""
    size: int
    """Bytes of their text."""


@dataclass(frozen=True)
class RowPattern:
    row: re.Pattern[bytes]
    """A row with the separator or end that follows it. Two groups per column."""
    incomplete: re.Pattern[bytes]
    """The beginning of a row at the end of the text."""
    expected: str
    """For messages."""


class Text:
    """A window on the text of a file, from the first byte that is not parsed yet."""

    def __init__(self, stream: TextStream, file: DataFile, block: int = BLOCK_BYTES) -> None:
        self.file = file
        self.text = b""
        self.at = 0
        self.ended = False
        self.row = file.first_row
        """The number of the next row."""
        self._stream = stream
        self._offset = file.start
        self._block = block

    @property
    def position(self) -> int:
        """The first byte that is not parsed yet, in the decompressed text."""
        return self._offset + self.at

    @property
    def is_empty(self) -> bool:
        return self.ended and self.at == len(self.text)

    def fill(self) -> bool:
        """Reads a block more. Returns whether there was more. A value larger than a block doubles the window each time."""
        rest = self.text[self.at :]
        more = self._stream.read(max(self._block, len(rest)))
        self._offset += self.at
        self.text, self.at, self.ended = rest + more, 0, not more
        return bool(more)

    def match(self, pattern: re.Pattern[bytes]) -> re.Match[bytes] | None:
        """Moves past the pattern, if the text goes on with it."""
        found = pattern.match(self.text, self.at)
        if found is not None:
            self.at = found.end()
        return found

    def take_rows(self, pattern: RowPattern) -> Taken:
        """The complete rows of the window that follow each other."""
        return self._take(pattern, re.Match.groups)

    def skip_rows(self, pattern: RowPattern) -> Taken:
        """As `take_rows`, without the values."""
        return self._take(pattern, lambda _: ())

    def _take(self, pattern: RowPattern, values: Callable[[re.Match[bytes]], Any]) -> Taken:
        scanner: Any = pattern.row.scanner(self.text, self.at)  # type: ignore[attr-defined]  # not in typeshed
        start, first, last = self.at, self.row, None
        rows: list[Row] = [values(last := found) for found in iter(scanner.match, None)]
        if last is not None:
            self.at = last.end()
            self.row += len(rows)
        return Taken(rows, first, self.at - start)

    def ends_insert(self, taken: Taken) -> bool:
        """Whether these rows, which were taken last, are the last ones of their INSERT."""
        return taken.size > 0 and self.text[self.at - 1 : self.at] == b";"

    def expect_more(self, pattern: RowPattern) -> None:
        """Reads more of a row that is not complete. Raises SourceError if it cannot become a row, or if the file ends."""
        if pattern.incomplete.match(self.text, self.at) is None or not self.fill():
            raise self.torn(pattern.expected)

    def torn(self, expected: str) -> Exception:
        """The error of text that is not what was expected."""
        found = self.text[self.at : self.at + _MAX_QUOTED]
        what = f"{found!r} cannot be read" if found else "the file ends"
        if self.ended and found:
            what = f"the file ends behind {found!r}"
        return self.file.error(
            f"{what} (byte {self.position:,}). {expected} is expected: the file is damaged or cut short, or was written "
            "with other options. Copy it again or repeat the export",
            self.row,
        )
