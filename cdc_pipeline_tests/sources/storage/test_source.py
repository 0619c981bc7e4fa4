"""The source `ticdc_storage`: which files are read when, in which order, and each line exactly once."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from pyspark.sql import Row, SparkSession
from pyspark.sql import functions as F

from cdc_pipeline.dialects.decoded_tables import decode_batches
from cdc_pipeline.errors import SourceError, TransientError
from cdc_pipeline.lake.lake import Lake
from cdc_pipeline.lake.paths import LakePaths
from cdc_pipeline.mirrors.changes.progress import read_progress
from cdc_pipeline.sources import raw_batches
from cdc_pipeline.sources.raw_batches import newest_note
from cdc_pipeline.sources.records import RECORD
from cdc_pipeline.sources.source import Intake, NewRecords, NoNewRecords, RunContext
from cdc_pipeline.sources.storage import batches
from cdc_pipeline.sources.storage import source as storage
from cdc_pipeline.sources.storage.folder import Folder, Listing, list_folder
from cdc_pipeline.sources.storage.layout import storage_file
from cdc_pipeline.sources.storage.source import TicdcStorage
from cdc_pipeline_tests.support.folders import tree
from cdc_pipeline_tests.support.messages import row, tso
from cdc_pipeline_tests.support.storage_sink import StorageSink, checkpoint, schema_file

_V = tso(0)
_COLUMN = {"ColumnName": "id", "ColumnType": "INT"}


def _lines(*numbers: int, size: int = 0, end: bytes = b"\r\n") -> bytes:
    return b"".join(_line(number, size) + end for number in numbers)


def _line(number: int, size: int = 0) -> bytes:
    message = json.loads(row("INSERT", "t", number, {"id": str(number), "text": "é" * size}))
    return json.dumps(message, ensure_ascii=False, separators=(",", ":")).encode()  # as TiCDC writes it


class _Taker:
    """Ingests one folder into one lake in several runs."""

    def __init__(self, spark: SparkSession, paths: LakePaths, source: TicdcStorage) -> None:
        self.spark, self.paths, self.source = spark, paths, source
        self.reports: list[str] = []

    @property
    def home(self) -> Path:
        return Path(self.paths.root)

    def ingest(self) -> Intake:
        self.reports = []
        return self.source.ingest(Lake(self.spark, self.paths), RunContext("run", self.reports.append))

    def rows(self) -> list[Row]:
        return self.spark.read.format("delta").load(self.paths.table("raw_topic_snapshot")).orderBy("offset").collect()

    def values(self) -> list[bytes]:
        """The values ordered by offset. Asserts that offsets are 0, 1, 2, …"""
        rows = self.rows()
        assert [found["offset"] for found in rows] == list(range(len(rows)))
        return [bytes(found["value"]) for found in rows]

    def find_new_records(self) -> NewRecords | NoNewRecords:
        return self.source.find_new_records(newest_note(self.paths))


@pytest.fixture
def sink(tmp_path: Path) -> StorageSink:
    (tmp_path / "sink").mkdir()
    return StorageSink(tmp_path / "sink")


@pytest.fixture
def taker(spark: SparkSession, paths: LakePaths, sink: StorageSink) -> _Taker:
    return _Taker(spark, paths, TicdcStorage(str(sink.root)))


@pytest.fixture
def small_splits(spark: SparkSession) -> Iterator[None]:
    """Spark splits files into small blocks, and combines blocks of several files into one task."""
    kept = {
        name: spark.conf.get(name) for name in ("spark.sql.files.maxPartitionBytes", "spark.sql.files.openCostInBytes")
    }
    spark.conf.set("spark.sql.files.maxPartitionBytes", "12000")
    spark.conf.set("spark.sql.files.openCostInBytes", "10")
    yield
    for name, value in kept.items():
        assert value is not None
        spark.conf.set(name, value)


# names in paths: TiCDC does not encode schema and table
_ODD = (
    "a=1",
    "[x]",
    "100%25 %",
    "_hidden",
    ".dot",
    " sp ace+",
    "データ",
    "{a,b}",
    "st*r?",
    "a,b",
    "back\\slash",
    "a/b",
    "#^~'\"",
)


@pytest.mark.usefixtures("small_splits")
@pytest.mark.parametrize("remote", [False, True], ids=["local", "hadoop"])
def test_lines_in_order_whatever_names_and_splits(remote: bool, taker: _Taker, sink: StorageSink) -> None:
    """Locally, and with Hadoop's file system as for any URI."""
    wanted: list[tuple[str, int, bytes]] = []
    for place, name in enumerate(_ODD[:6] if remote else _ODD):
        database, table = (name, "t") if place % 2 else ("d", name)
        path, content = schema_file(database, table, _V + place, "", 0, [_COLUMN])
        sink.put(path, content)
        wanted.append((path, 1, content))
        for index in (1, 2):
            data = f"{database}/{table}/{_V + place}/CDC{index:06}.json"
            numbers = range(20 * index, 20 * index + 12)
            sink.put(data, _lines(*numbers, size=_size(place), end=b"\n" if place % 3 == 0 else b"\r\n"))
            sink.put(f"{database}/{table}/{_V + place}/meta/CDC.index", f"CDC{index:06}.json\n".encode())
            wanted += [(data, line, _line(number, _size(place))) for line, number in enumerate(numbers, start=1)]
    sink.put("metadata", checkpoint(_V))
    sink.put(f"d/t/{_V}/CDC000009.json.tmp.0c7d", b"half a li")
    sink.put(f"d/t/{_V}/.CDC000009.json.crc", b"x")
    if remote:
        taker.source = TicdcStorage(f"file://{sink.root}")
    intake = taker.ingest()
    rows = taker.rows()
    found = [
        (headers["ticdc.file"], int(headers.get("ticdc.line", 0)), bytes(record["value"]))
        for record in rows
        if (headers := {item["key"]: item["value"].decode() for item in record["headers"]})
    ]
    assert found == [*wanted, ("metadata", 0, checkpoint(_V))]
    assert {(record["topic"], record["partition"], record["key"]) for record in rows} == {("ticdc_storage", 0, None)}
    assert rows[1]["timestamp"].timestamp() == pytest.approx((sink.root / wanted[1][0]).stat().st_mtime, abs=0.01)
    assert (intake.records, [span.last for span in intake.ranges]) == (len(rows), [len(rows) - 1])
    raw = taker.spark.read.format("delta").load(taker.paths.table("raw_topic_snapshot"))
    assert raw.columns == ["batch_id", *RECORD.names]
    assert isinstance(taker.find_new_records(), NoNewRecords)
    assert taker.ingest().batches == ()


def _size(place: int) -> int:
    """The files of one table exceed the split size."""
    return 800 if place == 1 else 3


def test_all_variants_of_paths_in_the_order_of_the_reference_consumer(taker: _Taker, sink: StorageSink) -> None:
    paths = [
        f"d/t/meta/schema_{_V}_0000000001.json",
        f"12345/{_V}/CDC_8a-b_c_000011.json",
        f"d/t/{_V}/CDC000002.json",
        f"d/t/{_V}/CDC00000000000000000010.json",
        f"d/t/{_V}/2026/CDC000001.json",
        f"12345/{_V}/2026-11-21/CDC000001.json",
        f"d/t/{_V}/2026-11-22/CDC000001.json",
        f"d/p/{_V}/77/CDC000001.json",
        f"d/p/{_V}/103/2026-11-21/CDC000001.json",
        f"1/2/{_V + 1}/CDC000001.json",
        f"d/meta/schema_{_V + 2}_0000000001.json",
        f"meta/meta/meta/schema_{_V + 3}_0000000001.json",
    ]
    for number, path in enumerate(paths):
        sink.put(path, schema_file("d", "t", _V, "", 0, [_COLUMN])[1] if "schema_" in path else _lines(number))
    taker.ingest()
    assert [record["headers"][0]["value"].decode() for record in taker.rows()] == paths


def test_growing_torn_and_empty_files(taker: _Taker, sink: StorageSink) -> None:
    """Incomplete files and the checkpoint wait for a later run. From a file that has grown, the new lines are read."""
    data = f"d/t/{_V}/CDC"
    sink.put(f"{data}000001.json", _lines(1, 2))
    sink.put(f"{data}000002.json", _lines(3) + _line(4))
    sink.put(f"d/u/{_V}/CDC000001.json", b"")
    sink.put(f"d/u/meta/schema_{_V}_0000000001.json", schema_file("d", "u", _V, "", 0, [_COLUMN])[1][:-9])
    sink.put("metadata", checkpoint(_V + 5))
    assert taker.ingest().records == 2
    assert taker.values() == [_line(1), _line(2)]
    assert [line.split(" ")[0] for line in taker.reports] == ["the", "3"]
    # TiCDC abandoned the second file in a crash and sent its rows again: the third one releases the checkpoint
    sink.put(f"{data}000003.json", _lines(4))
    sink.put(f"d/u/{_V}/CDC000001.json", _lines(5))
    path, content = schema_file("d", "u", _V, "", 0, [_COLUMN])
    (sink.root / f"d/u/meta/schema_{_V}_0000000001.json").unlink()
    sink.put(path, content)
    assert taker.ingest().records == 4
    assert taker.values()[2:] == [content, _line(4), _line(5), checkpoint(_V + 5)]
    # the files of decoded batches are in `batches`, those of the others in the notes only
    decode_batches(Lake(taker.spark, taker.paths))
    sink.put(f"{data}000001.json", _lines(1, 2, 6, 7))
    sink.put(f"{data}000002.json", _lines(3, 4))
    sink.put("metadata", checkpoint(_V + 4))  # a lower one, after a restart
    assert taker.ingest().records == 4
    assert taker.values()[6:] == [_line(6), _line(7), _line(3), _line(4)]
    sink.put(f"{data}000001.json", _lines(1, 2, 6, 7, 8))
    taker.ingest()
    assert taker.values()[10:] == [_line(8)]
    lines = [
        record["headers"][1]["value"]
        for record in taker.rows()
        if record["headers"][0]["value"] == f"{data}000001.json".encode()
    ]
    assert lines == [b"1", b"2", b"3", b"4", b"5"]
    assert taker.ingest().batches == ()


def test_batches_are_bounded_and_a_killed_run_goes_on(taker: _Taker, sink: StorageSink) -> None:
    names = [f"d/t/{_V}/CDC{index:06}.json" for index in range(1, 8)]
    for place, name in enumerate(names):
        sink.put(name, _lines(10 * place, 10 * place + 1))
    sink.put("metadata", checkpoint(_V))
    size = (sink.root / names[1]).stat().st_size
    taker.source = TicdcStorage(str(sink.root), max_bytes_per_batch=2 * size)
    append_once, calls = raw_batches.append_once, []

    def killed(*args: Any, **options: str) -> None:
        calls.append(args[2].version)
        if len(calls) == 3:
            raise KeyboardInterrupt
        append_once(*args, **options)

    with patch.object(raw_batches, "append_once", killed), pytest.raises(KeyboardInterrupt):
        taker.ingest()
    assert len(taker.values()) == 8
    # an incomplete run does not store the listing
    assert isinstance(taker.find_new_records(), NewRecords)
    decode_batches(Lake(taker.spark, taker.paths), up_to=1)
    assert taker.ingest().batches == (3, 4)
    wanted = [_line(number) for place in range(7) for number in (10 * place, 10 * place + 1)]
    assert taker.values() == [*wanted, checkpoint(_V)]
    assert [record["batch_id"] for record in taker.rows()] == [*([1] * 4), *([2] * 4), *([3] * 4), *([4] * 3)]
    assert isinstance(taker.find_new_records(), NoNewRecords)
    sink.put("metadata", checkpoint(_V + 1))
    assert isinstance(taker.find_new_records(), NewRecords)
    assert taker.ingest().records == 1


def test_batches_whose_notes_are_gone(taker: _Taker, sink: StorageSink) -> None:
    """Delta removes notes after 30 days; a rebuild then writes `batches` without files. Record headers still name them."""
    sink.put(f"d/t/{_V}/CDC000001.json", _lines(1, 2))
    sink.put(f"d/t/{_V}/CDC000002.json", _lines(3))
    sink.put("metadata", checkpoint(_V))
    taker.ingest()
    decode_batches(Lake(taker.spark, taker.paths))
    batches_table = taker.spark.read.format("delta").load(taker.paths.table("batches"))
    forgotten = batches_table.withColumn("files", F.expr("filter(files, file -> false)")).localCheckpoint()
    forgotten.write.format("delta").mode("overwrite").save(taker.paths.table("batches"))
    with patch("cdc_pipeline.sources.storage.batches._notes", lambda *_: {}):
        assert taker.ingest().batches == ()


def test_another_topic(taker: _Taker, sink: StorageSink) -> None:
    """Nothing is read again. The last watermark of the former topic no longer holds back the mirrors."""
    sink.put(f"d/t/{_V}/CDC000001.json", _lines(1))
    sink.put("metadata", checkpoint(_V))
    taker.ingest()
    decode_batches(Lake(taker.spark, taker.paths))
    taker.source = replace(taker.source, name="renamed")
    for number, later in ((2, tso(5)), (3, tso(6))):
        sink.put(f"d/t/{_V}/CDC00000{number}.json", _lines(number))
        sink.put("metadata", checkpoint(later))
        taker.ingest()
        decode_batches(Lake(taker.spark, taker.paths))
        found = read_progress(Lake(taker.spark, taker.paths))
        assert (found.resolved_tso, found.held_by) == (later, "renamed/0")
    assert [(row["topic"], row["offset"]) for row in taker.rows()].count(("renamed", 0)) == 1
    assert len(taker.rows()) == 6


def test_schema_files_that_are_written_again(taker: _Taker, sink: StorageSink) -> None:
    """After a restart TiCDC writes the same bytes again. Other bytes under the same name are an error."""
    path, content = schema_file("d", "t", _V, "CREATE TABLE t (id INT)", 3, [_COLUMN])
    sink.put(path, content)
    taker.ingest()
    os.utime(sink.root / path, (1, 1))
    sink.put("metadata", checkpoint(_V))
    assert taker.ingest().records == 1
    os.utime(sink.root / path, (2, 2))
    assert taker.ingest().batches == ()
    before = tree(taker.home)
    sink.put(path, content.replace(b"CREATE", b"create"))
    with pytest.raises(SourceError, match=r"schema_\d+_0123456789\.json in .* has changed since it was read"):
        taker.ingest()
    assert tree(taker.home) == before


_REFUSED: dict[str, tuple[dict[str, bytes], str]] = {
    "csv": ({f"d/t/{_V}/CDC000001.csv": b"x"}, "CDC000001.csv' is not a file .* protocol=csv"),
    "another file": ({"d/t/readme.txt": b"x"}, "readme.txt' is not a file of a TiCDC storage sink"),
    "no version": ({"d/t/100/CDC000001.json": b"x"}, "'d/t/100/CDC000001.json' is not a file"),
    "short index": ({f"d/t/{_V}/CDC00001.json": b"x"}, "CDC00001.json' is not a file"),
    "schema file elsewhere": ({f"d/t/schema_{_V}_0000000001.json": b"{}"}, "schema_.* is not a file"),
    "metadata of another kind": ({"metadata": b'{"checkpoint":1}'}, 'metadata in .*"checkpoint-ts"'),
    "checkpoint that is no time": ({"metadata": b'{"checkpoint-ts":5}'}, 'metadata in .*"checkpoint-ts"'),
    "nothing": ({}, "is empty"),
}


@pytest.mark.parametrize("name", _REFUSED)
def test_what_is_refused_makes_no_lake(name: str, taker: _Taker, sink: StorageSink) -> None:
    files, message = _REFUSED[name]
    for path, content in files.items():
        sink.put(path, content)
    with pytest.raises(SourceError, match=message):
        taker.ingest()
    assert tree(taker.home) is None


@pytest.mark.parametrize("path", ["missing", "file", "file:///missing/folder"])
def test_no_folder(path: str, taker: _Taker, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    taker.source = TicdcStorage(path if ":" in path else str(tmp_path / path))
    with pytest.raises(SourceError, match=r"does not exist|is a file"):
        taker.ingest()
    with pytest.raises(SourceError, match=r"does not exist|is a file"):
        taker.source.find_new_records(None)


@pytest.mark.parametrize("prefix", ["", "file://"])
def test_a_folder_that_cannot_be_read_now(
    prefix: str, taker: _Taker, sink: StorageSink, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The run is retried, and the lake is unchanged."""
    taker.source = TicdcStorage(f"{prefix}{sink.root}")
    (sink.root / "metadata").mkdir()
    with pytest.raises(TransientError, match=rf"storage folder '.*{sink.root}' cannot be read: "):
        taker.ingest()
    (sink.root / "metadata").rmdir()
    sink.put(f"d/t/{_V}/CDC000001.json", _lines(1))

    def list_and_expire(folder: Folder) -> Listing:
        listing = list_folder(folder)
        (sink.root / listing.files[0].path).unlink()
        return listing

    monkeypatch.setattr(storage, "list_folder", list_and_expire)
    with pytest.raises(TransientError, match=rf"storage folder '.*{sink.root}' cannot be read: .*CDC000001"):
        taker.ingest()
    assert tree(taker.home) is None


def test_a_file_that_was_cut_or_written_anew(taker: _Taker, sink: StorageSink) -> None:
    path = f"d/t/{_V}/CDC000001.json"
    sink.put(path, _lines(1, 2))
    taker.ingest()
    before = tree(taker.home)
    sink.put(path, _lines(1))
    with pytest.raises(SourceError, match=r"CDC000001\.json in .* and had \d+ when it was read"):
        taker.ingest()
    sink.put(path, _lines(1, 2000, 3, size=1))
    with pytest.raises(SourceError, match=r"CDC000001\.json was overwritten"):
        taker.ingest()
    assert tree(taker.home) == before


def test_news_of_an_empty_and_of_a_remote_folder(taker: _Taker, sink: StorageSink) -> None:
    assert isinstance(taker.find_new_records(), NoNewRecords)
    sink.put("metadata", checkpoint(_V))
    sink.put(f"d/t/{_V}/CDC000001.json", _lines(1))
    local, remote = taker.find_new_records(), TicdcStorage(f"file://{sink.root}").find_new_records(None)
    assert isinstance(local, NewRecords)
    assert isinstance(remote, NewRecords)
    assert local.range_id == remote.range_id


def test_portions() -> None:
    found = [storage_file(f"d/t/{_V}/CDC{index:06}.json", size, 0) for index, size in enumerate((5, 5, 1, 20, 3))]
    files = [file for file in found if file is not None]
    assert [[file.size for file in portion] for portion in batches.split_files(files, 10)] == [[5, 5], [1], [20], [3]]
    assert [len(portion) for portion in batches.split_files(files[:1] * 12000, 10**9)] == [5000, 5000, 2000]
