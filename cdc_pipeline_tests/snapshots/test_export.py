"""Each real export has the rows of its truth, and each damaged one is rejected by name."""

from __future__ import annotations

import gzip
import hashlib
import shutil
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

from cdc_pipeline.errors import SourceError
from cdc_pipeline.mysql.model.table import TableName
from cdc_pipeline.snapshots.export import Export, ExportType, FileReading, open_export
from cdc_pipeline_tests.support.exports import EXPORTS, comparable, rows_of, true_tables, unpacked

_ODD = 'snap.we"ird.na`me %/\\\\:*?'
_WHOLE: list[tuple[ExportType, str, str]] = [
    ("dumpling", "dumpling/tidb-sql", "dumpling/expected-tidb.json.gz"),
    ("dumpling", "dumpling/tidb-csv", "dumpling/expected-tidb.json.gz"),
    ("dumpling", "dumpling/mariadb-sql", "dumpling/expected-mariadb.json.gz"),
    ("dumpling", "dumpling/mariadb-csv", "dumpling/expected-mariadb.json.gz"),
    ("dumpling", "dumpling/mariadb-gz", "dumpling/expected-mariadb.json.gz"),
    ("mydumper", "mydumper/plain", "mydumper/expected.json.gz"),
    ("mydumper", "mydumper/gz", "mydumper/expected.json.gz"),
    ("mysqldump", "mysqldump/hex-blob.sql", "mysqldump/expected.json.gz"),
    ("mysqldump", "mysqldump/raw-blobs.sql", "mysqldump/expected.json.gz"),
    ("mysqldump", "mysqldump/tab", "mysqldump/expected.json.gz"),
    ("mysqldump", "mysqldump/mysqldump97-hex-blob.sql", "mysqldump/expected-mysql97.json.gz"),
    ("mysqldump", "mysqldump/mysqldump97.sql", "mysqldump/expected-mysql97.json.gz"),
]
_ABSENT = {
    "dumpling/mariadb-gz": {"snap.many", "snap.part_r"},
    "mydumper/gz": {"snap.many", "snap.part_r", "snap.types"},
    "mysqldump/tab": {"snap.part_r", "snap.types"},
}
_OF_ALL = {"dumpling/tidb-sql", "dumpling/tidb-csv", "dumpling/mariadb-sql", "dumpling/mariadb-csv"} | {
    *("mysqldump/hex-blob.sql", "mysqldump/mysqldump97-hex-blob.sql"),
}


@pytest.mark.parametrize("block", [1 << 20, 64], ids=["in one block", "in small blocks"])
@pytest.mark.parametrize(("kind", "name", "truth"), _WHOLE, ids=[name for _, name, _ in _WHOLE])
def test_an_export_has_the_rows_of_its_truth(
    kind: ExportType, name: str, truth: str, block: int, tmp_path: Path
) -> None:
    export = open_export(kind, str(unpacked(name, tmp_path)))
    true = true_tables(truth)
    assert {str(table.name) for table in export.tables} == _expected_tables(name, set(true))
    for table in export.tables:
        rows = rows_of(export, str(table.name), block=block, rows_per_batch=7)
        true_table = true[str(table.name)]
        columns = [column["name"] for column in true_table["columns"]]
        assert [column.name for column in table.schema.columns] == columns
        names = list(rows[0]) if rows else columns
        assert {column.name for column in table.schema.columns if column.generated is None} <= set(names)
        true_rows = [dict(zip(columns, row, strict=True)) for row in true_table["rows"]]
        assert comparable(rows, true_table, names) == comparable(true_rows, true_table, names)


def _expected_tables(name: str, true: set[str]) -> set[str]:
    if name in _OF_ALL:
        return true
    if name == "mydumper/plain":
        return true - {_ODD}
    return _ABSENT.get(name) or {table for table in true if table.startswith("snap.")}


def test_positions(tmp_path: Path) -> None:
    def of(kind: ExportType, name: str) -> Export:
        return open_export(kind, str(unpacked(name, tmp_path)))

    tidb, mariadb = of("dumpling", "dumpling/tidb-sql"), of("mydumper", "mydumper/plain")
    assert (tidb.position.tso, tidb.position.started) == (470764929277231104, "2026-11-28 00:28:10")
    assert tidb.time_zone is None
    for export in (mariadb, of("dumpling", "dumpling/mariadb-csv"), of("mysqldump", "mysqldump/hex-blob.sql")):
        assert export.position.tso is None
        assert all(part in export.position.binlog for part in ("bin.000001", "133755", "0-1-68"))
    assert mariadb.time_zone == "+00:00"
    mysql = of("mysqldump", "mysqldump/mysqldump97-hex-blob.sql")
    assert "LOG_POS=20914" in mysql.position.binlog
    assert "23b30afc-eac2-11f1-8d84-02fc00000001:1-33" in mysql.position.binlog
    assert (mysql.time_zone, mysql.position.finished) == ("+00:00", "2026-11-28  0:27:03")


def test_dumps_of_different_positions_are_no_export(tmp_path: Path) -> None:
    assert not open_export("mysqldump", str(tmp_path)).tables
    for number in (1, 2):
        lines = (
            f"-- Host: h    Database: d{number}",
            f"-- CHANGE MASTER TO MASTER_LOG_FILE='bin.000001', MASTER_LOG_POS={number};",
            "CREATE TABLE `t` (`id` int);\n-- Dump completed\n",
        )
        (tmp_path / f"{number}.sql").write_text("\n".join(lines))
    with pytest.raises(SourceError, match="files of different positions or time zones"):
        open_export("mysqldump", str(tmp_path))


def test_hashes_and_numbers_of_rows_are_those_of_the_files(tmp_path: Path) -> None:
    export = open_export("dumpling", str(unpacked("dumpling/mariadb-gz", tmp_path)))
    table = export.tables[0]
    reading = FileReading(export.files, table, table.files[0])
    assert sum(batch.texts.num_rows for batch in reading) == reading.rows == 300
    stored = (EXPORTS / "dumpling/mariadb-gz/snap.many.000000000.sql.gz").read_bytes()
    assert (reading.sha256, table.files[0].size) == (hashlib.sha256(stored).hexdigest(), len(stored))
    dump = open_export("mysqldump", str(EXPORTS / "mysqldump/mysqldump97.sql"))
    assert dump.hashes == {
        "mysqldump97.sql": hashlib.sha256((EXPORTS / "mysqldump/mysqldump97.sql").read_bytes()).hexdigest()
    }
    assert [sum(file.rows or 0 for file in each.files) for each in dump.tables if each.name.table == "many"] == [300]


@pytest.mark.parametrize("packed", [".gz", ".zst"])
@pytest.mark.parametrize("name", ["mysqldump/hex-blob.sql", "mysqldump/mysqldump97.sql"])
def test_a_compressed_dump_file_is_read_alike(name: str, packed: str, tmp_path: Path) -> None:
    content = (EXPORTS / name).read_bytes()
    path = tmp_path / f"dump.sql{packed}"
    path.write_bytes(gzip.compress(content) if packed == ".gz" else pa.compress(content, "zstd", asbytes=True))
    plain, compressed = open_export("mysqldump", str(EXPORTS / name)), open_export("mysqldump", str(path))
    for table in plain.tables:
        assert rows_of(compressed, str(table.name)) == rows_of(plain, str(table.name))
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(SourceError, match=r"dump\.sql.*(cut short|damaged)"):
        open_export("mysqldump", str(path))


def test_exports_that_were_cut_short_are_rejected(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="no file metadata, which is written last"):
        open_export("dumpling", str(EXPORTS / "dumpling/tidb-cut-short"))
    with pytest.raises(SourceError, match=r"metadata\.partial in place of metadata"):
        open_export("mydumper", str(unpacked("mydumper/cut-short", tmp_path)))
    with pytest.raises(SourceError, match="mysqldump --xml"):
        open_export("mysqldump", str(EXPORTS / "mysqldump/types.xml"))
    with pytest.raises(SourceError, match="does not exist"):
        open_export("mysqldump", str(tmp_path / "none"))


def _remove(name: str) -> Callable[[Path], None]:
    return lambda folder: (folder / name).unlink()


def _write(name: str, content: bytes) -> Callable[[Path], object]:
    return lambda folder: (folder / name).write_bytes(content)


def _cut(name: str, removed: int) -> Callable[[Path], object]:
    return lambda folder: (folder / name).write_bytes((folder / name).read_bytes()[:-removed])


@pytest.mark.parametrize(
    ("name", "damage", "message"),
    [
        ("dumpling/mariadb-sql", _remove("snap.comp-schema.sql"), r"snap\.comp\.0+\.sql: rows without a definition"),
        ("dumpling/mariadb-csv", _remove("snap.comp-schema.sql"), r"snap\.comp\.0+\.csv: rows without a definition"),
        ("mydumper/plain", _remove("snap.comp-schema.sql"), r"snap\.comp\.sql: rows without a definition"),
        ("dumpling/mariadb-sql", _cut("metadata", 40), "no line 'Finished dump at'"),
        (
            "dumpling/mariadb-sql",
            _cut("snap.comp-schema.sql", 10),
            r"snap\.comp-schema\.sql: CREATE TABLE … ; is expected",
        ),
        ("dumpling/mariadb-sql", _write("snap.comp.1.sql.snappy", b""), r"snappy: a format that is not read"),
        ("dumpling/mariadb-sql", _write("snap.comp.1.parquet", b""), r"parquet: a format that is not read"),
        ("dumpling/mariadb-sql", _write("snap.comp-schema.sql.gz", b""), "the definition is in the folder twice"),
        ("dumpling/mariadb-sql", _write("snap.comp.000000000.csv", b""), "these rows are in the folder twice"),
        ("mysqldump/tab", _remove("types.txt"), r"types\.sql: the file \.txt with the rows of snap\.types is missing"),
        ("mysqldump/tab", _remove("types.sql"), r"types\.txt: rows without a definition"),
        ("mysqldump/tab", _cut("types.sql", 41), r"types\.sql: the last line is not '-- Dump completed'"),
    ],
)
def test_incomplete_folders_are_rejected(
    name: str, damage: Callable[[Path], object], message: str, tmp_path: Path
) -> None:
    folder = tmp_path / "export"
    shutil.copytree(unpacked(name, tmp_path / "archive"), folder)
    damage(folder)
    with pytest.raises(SourceError, match=message):
        open_export(name.split("/")[0], str(folder))  # type: ignore[arg-type]


def test_a_file_that_vanished_is_named(tmp_path: Path) -> None:
    folder = tmp_path / "export"
    shutil.copytree(EXPORTS / "dumpling/mariadb-gz", folder)
    export = open_export("dumpling", str(folder))
    (folder / "snap.many.000000000.sql.gz").unlink()
    with pytest.raises(SourceError, match=r"the file 'snap\.many\.000000000\.sql\.gz' is missing"):
        rows_of(export, "snap.many")


def test_a_table_named_like_a_definition(tmp_path: Path) -> None:
    """mydumper: `d.a-schema.sql` has the rows of table `a-schema`, whose definition is `d.a-schema-schema.sql`."""
    _write("metadata", b"Finished dump at: 2026-11-28 00:16:29\n")(tmp_path)
    _write("d.a-schema-schema.sql", b"/*!40101 SET NAMES binary*/;\nCREATE TABLE `a-schema` (`id` int);\n")(tmp_path)
    _write("d.a-schema.sql", b"/*!40101 SET NAMES binary*/;\nINSERT INTO `a-schema` VALUES\n(1);\n")(tmp_path)
    export = open_export("mydumper", str(tmp_path))
    assert [table.name for table in export.tables] == [TableName("d", "a-schema")]
    assert rows_of(export, "d.a-schema") == [{"id": "1"}]
