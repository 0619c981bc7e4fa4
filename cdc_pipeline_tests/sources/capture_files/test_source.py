from __future__ import annotations

import base64
import gzip
import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from delta.tables import DeltaTable
from pyspark.sql import Row, SparkSession

from cdc_pipeline.errors import LakeError, SourceError
from cdc_pipeline.lake.lake import Lake
from cdc_pipeline.lake.paths import LakePaths
from cdc_pipeline.sources.capture_files.reading import list_folder
from cdc_pipeline.sources.capture_files.source import ingest_new_files
from cdc_pipeline.sources.intake import OffsetRange
from cdc_pipeline.sources.raw_batches import newest_batch, newest_note
from cdc_pipeline.sources.records import RECORD
from cdc_pipeline.sources.source import Intake
from cdc_pipeline_tests.support.folders import folder, line, tree
from cdc_pipeline_tests.support.messages import EPOCH_MS

_ALL_BYTES = bytes(range(256))
_EACH_BYTE = base64.b64encode(_ALL_BYTES).decode()


def _raw(spark: SparkSession, paths: LakePaths) -> list[Row]:
    return spark.read.format("delta").load(paths.table("raw_topic_snapshot")).collect()


def _places(spark: SparkSession, paths: LakePaths) -> list[tuple[int, str, int, int, bytes | None]]:
    return sorted(
        (row["batch_id"], row["topic"], row["partition"], row["offset"], row["value"] and bytes(row["value"]))
        for row in _raw(spark, paths)
    )


def _ingest(spark: SparkSession, paths: LakePaths, place: str, run_id: str = "run") -> Intake:
    return ingest_new_files(Lake(spark, paths), place, run_id)


# ---- ingested records


def test_a_batch_byte_for_byte(spark: SparkSession, paths: LakePaths, tmp_path: Path) -> None:
    record = line(
        ..., payload_base64=_EACH_BYTE, key=..., key_base64=_EACH_BYTE, headers=["a", "é"], partition=2, offset=9
    )
    place = folder(tmp_path / "c", {"a.jsonl": record + line(None, offset=1), "b.jsonl.gz": gzip.compress(line("é😀"))})
    intake = _ingest(spark, paths, place)
    assert (intake.batch_id, intake.records, intake.skipped_files) == (1, 3, ())
    assert intake.ranges == (OffsetRange("t", 0, 0, 1, 2), OffsetRange("t", 2, 9, 9, 1))
    assert [file.name for file in intake.files] == ["a.jsonl", "b.jsonl.gz"]
    table = spark.read.format("delta").load(paths.table("raw_topic_snapshot"))
    assert table.columns == ["batch_id", *RECORD.names]
    found = {(row["partition"], row["offset"]): row for row in table.collect()}
    assert {place: (row["batch_id"], row["key"], row["value"]) for place, row in found.items()} == {
        (0, 0): (1, None, bytearray("é😀".encode())),
        (0, 1): (1, None, None),
        (2, 9): (1, bytearray(_ALL_BYTES), bytearray(_ALL_BYTES)),
    }
    assert [tuple(header) for header in found[2, 9]["headers"]] == [("a", bytearray("é".encode()))]
    assert {row["timestamp"].timestamp() for row in found.values()} == {EPOCH_MS / 1000}


def test_raw_records_of_0_1_0_stay_as_they_are(spark: SparkSession, paths: LakePaths, tmp_path: Path) -> None:
    """Their table lacks `timestamp_ms`."""
    place = folder(tmp_path / "c", {"a.jsonl": line(offset=0)})
    _ingest(spark, paths, place)
    old = spark.read.format("delta").load(paths.table("raw_topic_snapshot")).drop("timestamp_ms")
    old.write.format("delta").mode("overwrite").option("overwriteSchema", True).save(paths.table("raw_topic_snapshot"))
    folder(tmp_path / "c", {"b.jsonl": line(offset=1, ts=EPOCH_MS * 1000)})
    _ingest(spark, paths, place)
    assert {row["offset"]: row["timestamp_ms"] for row in _raw(spark, paths)} == {0: None, 1: EPOCH_MS * 1000}


def test_the_commit_names_run_files_and_offsets(spark: SparkSession, paths: LakePaths, tmp_path: Path) -> None:
    place = folder(tmp_path / "c", {"a.jsonl": line(offset=4) + line(offset=7)})
    intake = _ingest(spark, paths, place, run_id="run-1")
    history = DeltaTable.forPath(spark, paths.table("raw_topic_snapshot")).history().select("userMetadata").collect()
    (file,) = intake.files
    assert [json.loads(row[0]) for row in history] == [
        {
            "batch": 1,
            "run_id": "run-1",
            "files": [[file.path, file.size, file.modified_ms]],
            "listing": list_folder(place).digest,
            "plain": False,  # the value "p" does not begin as a JSON object does
            "zero_ids": False,
            "offsets": [["t", 0, 4, 7, 2]],
        }
    ]


def test_a_batch_of_json_is_plain(spark: SparkSession, paths: LakePaths, tmp_path: Path) -> None:
    _ingest(spark, paths, folder(tmp_path / "c", {"a.jsonl": line("{}") + line('{"a": 1}', offset=1)}))
    note = newest_note(paths)
    assert note is not None
    assert note["plain"] is True


def test_the_same_record_is_one_record(spark: SparkSession, paths: LakePaths, tmp_path: Path) -> None:
    """In one file, in two files and in later runs. Other timestamps or headers do not make another record."""
    place = folder(tmp_path / "c", {"a.jsonl": line("0") + line("0", ts=EPOCH_MS + 1) + line("1", offset=1)})
    folder(tmp_path / "c", {"b.jsonl.gz": gzip.compress(line("1", offset=1, headers=["a", "b"]) + line("2", offset=2))})
    assert _ingest(spark, paths, place).ranges == (OffsetRange("t", 0, 0, 2, 3),)
    again = _ingest(spark, paths, place)
    assert (again.batch_id, again.records) == (2, 0)
    folder(tmp_path / "c", {"c.jsonl": line("2", offset=2) + line("3", offset=3) + line("0", partition=1)})
    assert _ingest(spark, paths, place).ranges == (OffsetRange("t", 0, 3, 3, 1), OffsetRange("t", 1, 0, 0, 1))
    assert _places(spark, paths) == [
        (1, "t", 0, 0, b"0"),
        (1, "t", 0, 1, b"1"),
        (1, "t", 0, 2, b"2"),
        (3, "t", 0, 3, b"3"),
        (3, "t", 1, 0, b"0"),
    ]


def test_a_decoded_file_is_read_again_only_when_it_grew(spark: SparkSession, paths: LakePaths, tmp_path: Path) -> None:
    first, second = line("0"), line("1", offset=1)
    place = folder(tmp_path / "c", {"a.jsonl": first, "b.jsonl": b'{"table": "t"}\n'})
    (file,) = _ingest(spark, paths, place).files
    # as decoding stores the batch
    noted = "files ARRAY<STRUCT<path: STRING, size: BIGINT, modified_ms: BIGINT>>"
    decoded = spark.createDataFrame([([(file.path, file.size, file.modified_ms)],)], noted)
    decoded.write.format("delta").save(paths.table("batches"))
    assert _ingest(spark, paths, place) == Intake((), (), (), 0, ("b.jsonl",))
    folder(tmp_path / "c", {"a.jsonl": first + second})
    grown = _ingest(spark, paths, place)
    assert (grown.batch_id, grown.ranges, [file.name for file in grown.files]) == (
        2,
        (OffsetRange("t", 0, 1, 1, 1),),
        ["a.jsonl"],
    )
    assert [row[:4] for row in _places(spark, paths)] == [(1, "t", 0, 0), (2, "t", 0, 1)]


def test_two_pipelines_in_one_lake(spark: SparkSession, paths: LakePaths, tmp_path: Path) -> None:
    other = LakePaths(paths.root, "other")
    assert newest_batch(Lake(spark, paths)) == 0
    _ingest(spark, paths, folder(tmp_path / "c", {"a.jsonl": line("shop")}))
    assert (newest_batch(Lake(spark, paths)), newest_batch(Lake(spark, other))) == (1, 0)
    assert _ingest(spark, other, folder(tmp_path / "d", {"a.jsonl": line("other")})).batch_id == 1
    assert [place[4] for place in _places(spark, paths) + _places(spark, other)] == [b"shop", b"other"]


# ---- invalid folders: name → (files, parts of the message). Files of None: the folder does not exist

_BAD_FOLDERS: dict[str, tuple[dict[str, bytes] | None, list[str]]] = {
    "missing": (None, ["the capture folder '{folder}' does not exist"]),
    "empty": ({}, ["the capture folder '{folder}' has no records", "kcat -C -J"]),
    "without captures": (
        {"a.json": line(), "expected.jsonl": b'{"table": "t"}\n'},
        ["the capture folder '{folder}' has no records", "Skipped files", "expected.jsonl"],
    ),
    "torn last line": (
        {"a.jsonl": line(), "b.jsonl": line(offset=1) + line(offset=2)[:-9]},
        [
            "'{folder}'",
            'b.jsonl: \'{"topic": "t", "partition": 0, "offset": 2',
            "may be incomplete",
            "Nothing was ingested",
        ],
    ),
    "bad line in the middle": (
        {"a b.jsonl": line() + b"oops\n" + line(offset=1)},
        ["'{folder}'", "a b.jsonl: 'oops'"],
    ),
    "gzip cut short": (
        {"a.jsonl": line(), "b.jsonl.gz": gzip.compress(line(offset=1) * 99)[:-9]},
        ["b.jsonl.gz in '{folder}' is truncated or damaged", "Nothing was ingested"],
    ),
    "gzip cut in its head": ({"b.jsonl.gz": gzip.compress(line())[:5]}, ["b.jsonl.gz in '{folder}' is truncated"]),
    "not compressed": ({"b.jsonl.gz": line()}, ["b.jsonl.gz in '{folder}' is truncated or damaged"]),
    "other bytes at a position": (
        {"a.jsonl": line("1", partition=3, offset=5) + line("2", partition=3, offset=5)},
        ["the source has two records with different bytes", "topic t, partition 3, offset 5"],
    ),
    "other bytes at a position of another file": (
        {"a.jsonl": line("1"), "b.jsonl.gz": gzip.compress(line("2"))},
        ["the source has two records with different bytes", "topic t, partition 0, offset 0"],
    ),
    "another key at a position": ({"a.jsonl": line(key="1") + line(key="2")}, ["different bytes", "offset 0"]),
    "a tombstone beside an empty value": ({"a.jsonl": line("") + line(None)}, ["different bytes", "offset 0"]),
    "a null key beside an empty key": ({"a.jsonl": line(key=None) + line(key="")}, ["different bytes", "offset 0"]),
}


@pytest.mark.parametrize("name", _BAD_FOLDERS)
def test_a_bad_folder_makes_no_lake(name: str, spark: SparkSession, paths: LakePaths, tmp_path: Path) -> None:
    files, parts = _BAD_FOLDERS[name]
    place = str(tmp_path / "c") if files is None else folder(tmp_path / "c", files)
    with pytest.raises(SourceError) as error:
        _ingest(spark, paths, place)
    assert [part for part in parts if part.replace("{folder}", place) not in str(error.value)] == []
    assert tree(Path(paths.root)) is None


def test_a_folder_that_is_a_file(spark: SparkSession, paths: LakePaths, tmp_path: Path) -> None:
    place = tmp_path / "a.jsonl"
    place.write_bytes(line())
    with pytest.raises(SourceError, match="is a file"):
        _ingest(spark, paths, str(place))
    assert tree(Path(paths.root)) is None


@pytest.fixture(scope="module")
def lake(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> LakePaths:
    """A lake with the offsets 0 to 2 of one partition."""
    root = tmp_path_factory.mktemp("lake")
    paths = LakePaths(str(root / "lake"), "shop")
    known = line("0") + line(None, offset=1) + line("2", offset=2)
    _ingest(spark, paths, folder(root / "c", {"a.jsonl": known}))
    return paths


@pytest.mark.parametrize(
    ("content", "parts"),
    [
        (line("other", offset=2), ["the lake already has another record", "topic t, partition 0, offset 2"]),
        (line("", offset=1), ["the lake already has another record", "topic t, partition 0, offset 1"]),
        (line("3", offset=3) + line("0", offset=0, key=""), ["the lake already has another record", "offset 0"]),
        (line("3", offset=3) + b"{", ["z.jsonl: '{'"]),
    ],
    ids=["other value", "empty for tombstone", "other key beside a new record", "torn line"],
)
def test_a_bad_file_leaves_the_lake_as_it_was(
    content: bytes, parts: list[str], spark: SparkSession, lake: LakePaths, tmp_path: Path
) -> None:
    before = tree(Path(lake.root))
    with pytest.raises(SourceError) as error:
        _ingest(spark, lake, folder(tmp_path, {"z.jsonl": content}))
    assert [part for part in parts if part not in str(error.value)] == []
    assert tree(Path(lake.root)) == before


# ---- a lake that cannot be written


def _below_a_file(place: Path) -> str:
    (place / "file").write_bytes(b"")
    return str(place / "file" / "lake")


def _a_file(place: Path) -> str:
    (place / "file").write_bytes(b"")
    return str(place / "file")


def _pipeline_is_a_file(place: Path) -> str:
    (place / "shop").write_bytes(b"")
    return str(place)


def _name_too_long(place: Path) -> str:
    return str(place / ("x" * 300))


def _name_too_long_in_a_new_folder(place: Path) -> str:
    return str(place / "new" / ("x" * 300))


@pytest.mark.parametrize(
    "make", [_below_a_file, _a_file, _pipeline_is_a_file, _name_too_long, _name_too_long_in_a_new_folder]
)
def test_a_lake_that_cannot_be_written(make: Callable[[Path], str], spark: SparkSession, tmp_path: Path) -> None:
    place = tmp_path / "place"
    place.mkdir()
    root = make(place)
    captures = folder(tmp_path / "c", {"a.jsonl": line()})
    before = tree(place)
    with pytest.raises(LakeError) as error:
        _ingest(spark, LakePaths(root, "shop"), captures)
    assert str(error.value).startswith(f"the lake {root!r} cannot be written: ")
    assert tree(place) == before


def test_a_writable_lake_is_left_as_it_was(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "lake").mkdir()
    LakePaths(str(tmp_path / "lake"), "shop").require_writable(spark)
    LakePaths(str(tmp_path / "new" / "lake"), "shop").require_writable(spark)
    assert tree(tmp_path) == {"lake": None}


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_without_permission(spark: SparkSession, tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(LakeError, match="Permission denied"):
        LakePaths(str(tmp_path / "lake"), "shop").require_writable(spark)
