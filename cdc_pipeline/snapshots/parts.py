"""Divides a large file into parts that can be loaded independently, with the right numbers of rows."""

from __future__ import annotations

from dataclasses import dataclass, replace

from cdc_pipeline.snapshots.csv_files import read_header
from cdc_pipeline.snapshots.files import BLOCK_BYTES, DataFile, ExportFiles
from cdc_pipeline.snapshots.row_text import Text


@dataclass(frozen=True)
class _Lines:
    """How the lines of a file show its rows."""

    row: bytes
    """Occurs once per row."""
    end: bytes
    """After its first `keep` bytes a part may end."""
    keep: int


_SQL = _Lines(b"\n(", b";\nINSERT INTO ", 2)
_CSV = _Lines(b"\n", b"\n", 1)


def split_file(
    files: ExportFiles, file: DataFile, part_bytes: int, block: int = BLOCK_BYTES
) -> tuple[list[DataFile], str | None]:
    """The parts of a file of a folder, each a little larger than `part_bytes`, and the SHA-256 of the file.

    One part, and no hash, for a smaller or compressed file, and for SQL with several rows a line. Newlines in values are
    escaped, so lines show rows without parsing them. A part that has another number of rows fails when it is read.
    """
    is_csv = file.path.endswith(".csv")
    if file.size <= part_bytes or not file.path.endswith((".csv", ".sql")) or file.end is not None:
        return [file], None
    lines, columns = (_CSV, _header(files, file)) if is_csv else (_SQL, ())
    parts: list[DataFile] = []
    with files.open(file.path) as stream:
        window, offset, start = b"", 0, 0
        first, row = 1, 0 if is_csv else 1  # the header is a line
        while more := stream.read(block):
            if offset == 0 and not is_csv and b" VALUES\n(" not in more:
                return [file], None
            window += more
            at = 0
            while (end := window.find(lines.end, max(at, start + part_bytes - offset))) >= 0:
                end += lines.keep
                row += window.count(lines.row, at, end)
                parts.append(replace(file, start=start, end=offset + end, first_row=first, rows=row - first))
                at, start, first = end, offset + end, row
            kept = max(at, len(window) - len(lines.end) + 1)  # the rest may be the beginning of a marker
            row += window.count(lines.row, at, kept + len(lines.row) - 1)
            window, offset = window[kept:], offset + kept
        row += window.count(lines.row)
        if window or row > first:
            parts.append(replace(file, start=start, first_row=first, rows=row - first))
        return [parts[0], *(replace(part, columns=columns) for part in parts[1:])], stream.sha256


def _header(files: ExportFiles, file: DataFile) -> tuple[str, ...]:
    with files.open(file.path) as stream:
        return read_header(Text(stream, file))
