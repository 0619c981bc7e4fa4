"""The parts of a file have together the rows of the file, with the same numbers."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from cdc_pipeline.errors import SourceError
from cdc_pipeline.snapshots.export import ExportType, FileReading, open_export
from cdc_pipeline.snapshots.parts import split_file
from cdc_pipeline_tests.support.exports import unpacked


@pytest.mark.parametrize("block", [40, 1000, 1 << 20])
@pytest.mark.parametrize("part_bytes", [200, 1000, 5000])
@pytest.mark.parametrize(("kind", "name"), [("dumpling", "tidb-sql"), ("dumpling", "tidb-csv"), ("mydumper", "plain")])
def test_parts_have_the_rows_of_the_file(
    kind: ExportType, name: str, part_bytes: int, block: int, tmp_path: Path
) -> None:
    folder = unpacked(f"{kind}/{name}", tmp_path)
    export = open_export(kind, str(folder))
    table = next(table for table in export.tables if table.name.table == "many")
    file = folder / table.files[0].path
    if file.suffix == ".sql":  # one statement a file: more of them
        head, rows = file.read_bytes().split(b"INSERT")
        file.write_bytes(head + b"INSERT".join([b"", *[rows] * 5]))
    export = open_export(kind, str(folder))
    table = next(table for table in export.tables if table.name.table == "many")
    (whole, sha256), block_of_head = split_file(export.files, table.files[0], 1 << 30), max(block, 200)
    assert (whole, sha256) == ([table.files[0]], None)
    parts, sha256 = split_file(export.files, table.files[0], part_bytes, block_of_head)
    assert len(parts) > 1
    assert sha256 == hashlib.sha256(file.read_bytes()).hexdigest()
    expected = [row for batch in FileReading(export.files, table, table.files[0]) for row in batch.texts.to_pylist()]
    found = []
    for part in reversed(parts):
        reading = FileReading(export.files, table, part, block=block)
        rows_of_part = [(batch.first_row, row) for batch in reading for row in batch.texts.to_pylist()]
        assert rows_of_part[0][0] == part.first_row
        assert len(rows_of_part) == reading.rows == part.rows
        found = [row for _, row in rows_of_part] + found
    assert found == expected
    assert [part.first_row for part in parts[1:]] == [part.first_row + (part.rows or 0) for part in parts[:-1]]


def test_a_part_whose_rows_have_changed_is_rejected(tmp_path: Path) -> None:
    folder = unpacked("dumpling/tidb-csv", tmp_path)
    export = open_export("dumpling", str(folder))
    table = next(table for table in export.tables if table.name.table == "many")
    parts, _ = split_file(export.files, table.files[0], 5000)
    file = folder / table.files[0].path
    file.write_bytes(file.read_bytes() + b'301,"a"\n')
    with pytest.raises(SourceError, match="it has changed"):
        list(FileReading(export.files, table, parts[-1]))


def test_compressed_files_and_files_with_several_rows_a_line_are_one_part(tmp_path: Path) -> None:
    export = open_export("dumpling", str(unpacked("dumpling/mariadb-gz", tmp_path)))
    assert split_file(export.files, export.tables[0].files[0], 10) == ([export.tables[0].files[0]], None)
    folder = unpacked("mydumper/plain", tmp_path)
    (folder / "snap.comp.sql").write_bytes(b'INSERT INTO `comp` VALUES(1,"a","b")\n,(2,"a","b");\n' * 9)
    export = open_export("mydumper", str(folder))
    table = next(table for table in export.tables if table.name.table == "comp")
    assert split_file(export.files, table.files[0], 10) == ([table.files[0]], None)
