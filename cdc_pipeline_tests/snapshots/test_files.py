"""Files are read alike from a local folder and from S3."""

from __future__ import annotations

import gzip
import hashlib
from pathlib import Path

import pyarrow as pa
import pytest

from cdc_pipeline.errors import SourceError
from cdc_pipeline.lake.store import arrow_folder
from cdc_pipeline.snapshots.export import open_export
from cdc_pipeline.snapshots.files import ExportFiles
from cdc_pipeline_tests.support.exports import rows_of, unpacked
from cdc_pipeline_tests.support.servers.object_store import BUCKET

_TEXT = b"".join(b"line %d\n" % number for number in range(100))


@pytest.fixture(params=["local", "s3"])
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "s3":
        request.getfixturevalue("s3")
        return f"s3a://{BUCKET}/exports {tmp_path.name}"
    (tmp_path / "export").mkdir()
    return str(tmp_path / "export")


def _write(folder: str, name: str, content: bytes) -> None:
    with arrow_folder(folder).open_output_stream(name, compression=None) as stream:
        stream.write(content)


@pytest.mark.parametrize("packed", ["", ".gz", ".zst"])
def test_a_range_of_the_text_is_read(folder: str, packed: str) -> None:
    stored = {"": _TEXT, ".gz": gzip.compress(_TEXT), ".zst": pa.compress(_TEXT, "zstd", asbytes=True)}[packed]
    name = f"表 %25.txt{packed}"
    _write(folder, name, stored)
    for path, is_folder in ((folder, True), (f"{folder}/", True), (f"{folder}/{name}", False)):
        files = ExportFiles(path)
        assert (files.is_folder, files.sizes) == (is_folder, {name: len(stored)})
        assert files.read(name) == _TEXT
    with files.open(name, 100, 150) as stream:
        assert stream.read(20) + stream.read(100) + stream.read(1) == _TEXT[100:150]
    with files.open(name) as stream:
        while stream.read(7):
            pass
        assert stream.sha256 == hashlib.sha256(stored).hexdigest()
    if packed:
        _write(folder, name, stored[:-5])
        with pytest.raises(SourceError, match=f"{packed}: damaged or cut short"):
            files.read(name)


def test_an_export_is_read(folder: str, tmp_path: Path) -> None:
    local = unpacked("dumpling/tidb-sql", tmp_path)
    for file in local.iterdir():
        _write(folder, file.name, file.read_bytes())
    expected, export = open_export("dumpling", str(local)), open_export("dumpling", folder)
    assert export.tables == expected.tables
    for table in export.tables:
        assert rows_of(export, str(table.name)) == rows_of(expected, str(table.name))


def test_what_is_missing_is_named(folder: str) -> None:
    with pytest.raises(SourceError, match="does not exist"):
        ExportFiles(f"{folder}/none")
    _write(folder, "a.sql", b"")
    with pytest.raises(SourceError, match=r"the file 'b\.sql' is missing"):
        ExportFiles(folder).read("b.sql")
    with pytest.raises(SourceError, match=r"is a file\. The folder that dumpling has written is expected"):
        open_export("dumpling", f"{folder}/a.sql")
    with pytest.raises(SourceError, match="the type of the export"):
        open_export("other", folder)  # type: ignore[arg-type]
