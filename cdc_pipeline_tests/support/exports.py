"""The exports in `data/exports`, and their true tables."""

from __future__ import annotations

import gzip
import io
import json
import tarfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from cdc_pipeline.snapshots.export import Export, FileReading
from cdc_pipeline.snapshots.files import DataFile
from cdc_pipeline.snapshots.row_text import Text

EXPORTS = Path(__file__).parents[2] / "data" / "exports"
_NUMBERS = ("float", "double")

Rows = list[dict[str, str | None]]


def unpacked(name: str, folder: Path) -> Path:
    """An export by its path in `data/exports`. One in an archive is unpacked below `folder`."""
    archive = EXPORTS / f"{name}.tar.gz"
    if not archive.exists():
        return EXPORTS / name
    with tarfile.open(archive) as tar:
        tar.extractall(folder, filter="data")
    return folder / Path(name).name


def true_tables(name: str) -> dict[str, Any]:
    """Table → its definition and rows."""
    return json.loads(gzip.decompress((EXPORTS / name).read_bytes()))["tables"]


def rows_of(export: Export, table: str, **options: int) -> Rows:
    """The rows of a table, in the order of its files."""
    found: Rows = []
    exported = next(each for each in export.tables if str(each.name) == table)
    for file in exported.files:
        reading = FileReading(export.files, exported, file, **options)
        row = file.first_row
        for batch in reading:
            assert batch.first_row == row
            row += batch.texts.num_rows
            found += batch.texts.to_pylist()
        assert row - file.first_row == reading.rows
    return found


def text_of(content: bytes, block: int = 1 << 20) -> Text:
    text = Text(io.BytesIO(content), DataFile("t.sql", len(content)), block)  # type: ignore[arg-type]
    text.fill()
    return text


def comparable(rows: Rows, truth: dict[str, Any], names: Sequence[str]) -> Counter[tuple[Any, ...]]:
    """The rows as a multiset: FLOAT and DOUBLE to six digits, JSON as documents."""
    types = {column["name"]: column["data_type"] for column in truth["columns"]}

    def value(name: str, text: str | None) -> Any:
        if text is None:
            return None
        if types[name] in _NUMBERS:
            return f"{float(text):.5e}"
        return json.dumps(json.loads(text), sort_keys=True) if types[name] == "json" or name == "c_json" else text

    return Counter(tuple(value(name, row[name]) for name in names) for row in rows)
