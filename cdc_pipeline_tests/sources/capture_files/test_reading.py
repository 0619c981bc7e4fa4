from __future__ import annotations

import base64
import gzip
import json
import zlib
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import Row, SparkSession
from pyspark.sql import functions as F

from cdc_pipeline.errors import SourceError
from cdc_pipeline.lake.lake import Lake
from cdc_pipeline.lake.paths import LakePaths
from cdc_pipeline.sources.capture_files.reading import (
    damaged_gzip,
    list_folder,
    overlong_line,
    records,
    text_bytes,
)
from cdc_pipeline.sources.capture_files.source import ingest_new_files
from cdc_pipeline.sources.records import RECORD
from cdc_pipeline.sources.source import SourceFile
from cdc_pipeline_tests.support.folders import folder, line
from cdc_pipeline_tests.support.messages import EPOCH_MS

_ALL_BYTES = bytes(range(256))
_EACH_BYTE = base64.b64encode(_ALL_BYTES).decode()
_UNICODE = '\0\n\r"\\/\x7f\u0080é\u2028中😀\U0010ffff'

# ---- valid lines: name → (content of the file, fields of its only record)

_RECORDS: dict[str, tuple[bytes, dict[str, Any]]] = {
    "as kcat prints it": (
        line("text", topic="shop", partition=3, offset=2**40, key="k"),
        {
            "topic": "shop",
            "partition": 3,
            "offset": 2**40,
            "ms": EPOCH_MS,
            "key": b"k",
            "value": b"text",
            "headers": [],
        },
    ),
    "text of any characters": (line(_UNICODE, key=_UNICODE), {"value": _UNICODE.encode(), "key": _UNICODE.encode()}),
    "any characters unescaped": (
        json.dumps(json.loads(line("é中😀\u0080\u2028")), ensure_ascii=False).encode() + b"\n",
        {"value": "é中😀\u0080\u2028".encode()},
    ),
    "payload_base64": (line(..., payload_base64=_EACH_BYTE), {"value": _ALL_BYTES, "key": None}),
    "key_base64": (line(key=..., key_base64=_EACH_BYTE), {"key": _ALL_BYTES, "value": b"p"}),
    "payload_base64 beside a null payload": (line(None, payload_base64="AAH/"), {"value": b"\x00\x01\xff"}),
    "payload_base64 that is null": (line("p", payload_base64=None), {"value": b"p"}),
    "payload_base64 of nothing": (line(..., payload_base64=""), {"value": b""}),
    "tombstone": (line(None, key="k"), {"value": None, "key": b"k"}),
    "empty payload and key": (line("", key=""), {"value": b"", "key": b""}),
    "headers": (
        line(headers=["a", "1", "b", "é", "a", "2"]),
        {"headers": [("a", b"1"), ("b", "é".encode()), ("a", b"2")]},
    ),
    "headers without values": (line(headers=["a", None, "b"]), {"headers": [("a", None), ("b", None)]}),
    "headers null": (line(headers=None), {"headers": None}),
    "no headers, key or time": (line(headers=..., key=..., ts=...), {"headers": None, "key": None, "ms": None}),
    "ts null": (line(ts=None), {"ms": None, "value": b"p"}),
    "ts before 1970": (line(ts=-1), {"ms": -1}),
    **{
        f"ts out of range: {ms}": (line(ts=ms), {"ms": None, "timestamp_ms": ms, "value": b"p"})
        for ms in (EPOCH_MS * 10**3, EPOCH_MS * 10**6, 2**63 - 1, -(2**63), 253_402_214_400_001)
    },
    "ts at the end of 9999": (line(ts=253_402_214_400_000), {"ms": 253_402_214_400_000, "timestamp_ms": None}),
    "fields in another order": (
        b'{"payload":"p","offset":7,"key":null,"partition":1,"topic":"t"}\n',
        {"topic": "t", "partition": 1, "offset": 7, "value": b"p"},
    ),
    "fields that kcat does not print": (line(more={"a": [1]}), {"value": b"p"}),
    "without a final line end": (line().rstrip(), {"value": b"p"}),
    "CRLF": (line().rstrip() + b"\r\n", {"value": b"p"}),
    "blank lines": (b"\n\r\n \t \n" + line() + b"\n\n   \r\n\t", {"value": b"p"}),
    "a byte order mark": (b"\xef\xbb\xbf" + line(), {"value": b"p"}),
    "a message with half of a surrogate pair": (line('{"a":"\\ud800"}'), {"value": b'{"a":"\\ud800"}'}),
    "a message with kcat's own field names": (
        line('{"payload":1.50,"key":2,"_end":false}'),
        {"value": b'{"payload":1.50,"key":2,"_end":false}'},
    ),
    "a long payload": (line("x" * 3_000_000), {"value": b"x" * 3_000_000}),
    "gzip": (gzip.compress(line("zipped")), {"value": b"zipped"}),
    "gzip in two members": (
        gzip.compress(line("zipped")[:20]) + gzip.compress(line("zipped")[20:]),
        {"value": b"zipped"},
    ),
}

# ---- invalid lines; each follows a valid one, so that the file counts as a capture

_NO_RECORDS: dict[str, bytes] = {
    "torn": line()[:-3],
    "torn in a text": line("abc")[:-4],
    "no JSON": b"% Reached end of topic\n",
    "a list": b"[1]\n",
    "a text": b'"x"\n',
    "null": b"null\n",
    "another object": b'{"table": "t"}\n',
    "two records in a line": line("1").rstrip() + line("2"),
    "text after the record": line().rstrip() + b" x\n",
    "no topic": line(topic=...),
    "topic null": line(topic=None),
    "no partition": line(partition=...),
    "no offset": line(offset=...),
    "offset a text": line(offset="5"),
    "offset a fraction": line(offset=1.5),
    "offset below 0": line(offset=-1),
    "offset beyond 64 bits": line(offset=2**63),
    "partition below 0": line(partition=-1),
    "partition beyond 32 bits": line(partition=2**31),
    "ts a text": line(ts="now"),
    "headers an object": line(headers={"a": "b"}),
    "payload a number": line(1.50),
    "payload an object": line({"a": 1.50}),
    "payload a list": line([1]),
    "payload true": line(True),
    "key a number": line(key=5),
    "payload_base64 that is none": line(..., payload_base64="*"),
    "payload_base64 cut short": line(..., payload_base64="AA="),
    "key_base64 that is none": line(key=..., key_base64="_"),
    "bytes that are no UTF-8": line("HERE").replace(b"HERE", b"\xff\xfe"),
    "half of a surrogate pair": line("HERE").replace(b"HERE", b"\\ud800"),
    "a NUL in a text": line("HERE").replace(b"HERE", b"\0"),
}


@pytest.fixture(scope="module")
def rows(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[Row]]:
    """Case → rows of its file. One query reads all files."""
    place = tmp_path_factory.mktemp("captures")
    names = [*_RECORDS, *_NO_RECORDS]
    contents = [content for content, _ in _RECORDS.values()] + [
        line(topic="good") + bad for bad in _NO_RECORDS.values()
    ]
    files = {
        f"{index:03}.jsonl" + (".gz" if content[:2] == b"\x1f\x8b" else ""): content
        for index, content in enumerate(contents)
    }
    listing = list_folder(folder(place, files))
    assert [file.name for file in listing.files] == list(files)
    found: dict[str, list[Row]] = {name: [] for name in names}
    frame = records(spark, listing.files)
    assert frame.select(*RECORD.names).schema.simpleString() == RECORD.simpleString()
    for row in frame.withColumn("ms", F.unix_millis("timestamp")).collect():
        found[names[int(row["_file"][:3])]].append(row)
    return found


@pytest.mark.parametrize("name", _RECORDS)
def test_record(name: str, rows: dict[str, list[Row]]) -> None:
    (row,) = rows[name]
    found = row.asDict()
    if found["headers"] is not None:
        found["headers"] = [tuple(header) for header in found["headers"]]
    wanted = {"_unreadable": None, **_RECORDS[name][1]}
    assert {field: found[field] for field in wanted} == wanted


@pytest.mark.parametrize("name", _NO_RECORDS)
def test_line_that_is_no_record(name: str, rows: dict[str, list[Row]]) -> None:
    good, bad = sorted(rows[name], key=lambda row: row["_unreadable"] is not None)
    assert (good["topic"], good["_unreadable"]) == ("good", None)
    text = _NO_RECORDS[name].decode(errors="replace").rstrip("\n")
    assert bad["_unreadable"] == text[:200]


# ---- the folder


def test_files_in_name_order_with_size_and_time(tmp_path: Path) -> None:
    place = folder(tmp_path, {"b.jsonl": line(), "a.jsonl.gz": gzip.compress(line()), "B.jsonl": line() * 2})
    found = list_folder(place).files
    times = [(tmp_path / name).stat().st_mtime_ns // 1_000_000 for name in ("B.jsonl", "a.jsonl.gz", "b.jsonl")]
    assert found == (
        SourceFile(str(tmp_path / "B.jsonl"), 2 * len(line()), times[0]),
        SourceFile(str(tmp_path / "a.jsonl.gz"), (tmp_path / "a.jsonl.gz").stat().st_size, times[1]),
        SourceFile(str(tmp_path / "b.jsonl"), len(line()), times[2]),
    )


@pytest.mark.parametrize(("name", "content"), [("a.jsonl", b"12345"), ("a.jsonl.gz", gzip.compress(b"12345", mtime=0))])
def test_the_size_of_a_text(name: str, content: bytes, tmp_path: Path) -> None:
    Path(tmp_path, name).write_bytes(content)
    (listed,) = list_folder(str(tmp_path)).files
    assert text_bytes(listed) == 5


def test_a_gzip_file_without_a_size_is_as_large_as_it_is(tmp_path: Path) -> None:
    assert text_bytes(SourceFile(str(tmp_path / "torn.jsonl.gz"), 3, 0)) == 3


def test_other_files_and_folders_are_not_list_folder(tmp_path: Path) -> None:
    names = ["README.md", "expected.json", "a.json", "a.jsonl.bak", "a.jsonl.zst", ".hidden.jsonl", ".a.jsonl.gz"]
    place = folder(tmp_path, dict.fromkeys(names, line()))
    (tmp_path / "folder.jsonl").mkdir()
    listing = list_folder(place)
    assert (listing.files, listing.skipped) == ((), ())


@pytest.mark.parametrize(
    "content",
    [
        b'{"table": "t", "rows": []}\n',
        b'{"payload": "p"}\n' + line(),
        b"{}\n",
        b'{"rows": "' + b"x" * 2_000_000 + b'"}\n',
    ],
    ids=["another object", "no position in the first line", "empty object", "a long line"],
)
def test_files_without_records_are_skipped(content: bytes, tmp_path: Path) -> None:
    place = folder(tmp_path, {"expected.jsonl": content, "z.jsonl.gz": gzip.compress(content), "a.jsonl": line()})
    listing = list_folder(place)
    assert [file.name for file in listing.files] == ["a.jsonl"]
    assert listing.skipped == ("expected.jsonl", "z.jsonl.gz")


@pytest.mark.parametrize(
    "content",
    [
        line(),
        b'{"offset": 1}\n',
        b"\n" + line(),
        b"no JSON\n",
        b"",
        line()[:-5],
        b"[" * 100_000,
        b'{"payload": "' + b"x" * 2_000_000 + b'", "topic": "t", "partition": 0, "offset": 1}\n',
    ],
    ids=["record", "half a record", "blank first", "no JSON", "empty", "torn", "deep", "position after the payload"],
)
def test_files_that_might_hold_records_are_not_skipped(content: bytes, tmp_path: Path) -> None:
    place = folder(tmp_path, {"a.jsonl": content})
    listing = list_folder(place)
    assert ([file.name for file in listing.files], listing.skipped) == (["a.jsonl"], ())


@pytest.mark.parametrize("name", ["_a.jsonl", "2026-11-21T10:00:00.jsonl"])
def test_names_that_spark_passes_over_are_refused(name: str, tmp_path: Path) -> None:
    place = folder(tmp_path, {name: line()})
    with pytest.raises(SourceError) as error:
        list_folder(place)
    assert str(error.value).startswith(f"{name!r} in {place!r} has a name that Spark does not read")


_TARGETS = ["_x.jsonl", ".x", "10:00.jsonl", "x._COPYING_", "_p/x.jsonl", ".p/x", "10:00/x", "x.zst"]
"""Files with names that Spark does not read, or reads in another way. Those of folders do not matter."""


def _links(tmp_path: Path) -> str:
    """A folder with a link to a file of each name; the content of the file is the name of the link."""
    place = tmp_path / "captures"
    place.mkdir()
    for number, target in enumerate(_TARGETS):
        file = tmp_path / "store" / target
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(line(f"{number}.jsonl", offset=number))
        (place / f"{number}.jsonl").symlink_to(file)
    return str(place)


def test_links_are_listed_by_their_own_name(tmp_path: Path) -> None:
    place = _links(tmp_path)
    found = list_folder(place)
    assert [file.path for file in found.files] == [f"{place}/{number}.jsonl" for number in range(len(_TARGETS))]


def test_links_to_names_that_spark_passes_over_are_read(spark: SparkSession, tmp_path: Path) -> None:
    found = records(spark, list_folder(_links(tmp_path)).files).select(F.col("value").cast("string"), "_file").collect()
    assert sorted(found) == [(f"{number}.jsonl", f"{number}.jsonl") for number in range(len(_TARGETS))]


def test_a_missing_folder(tmp_path: Path) -> None:
    place = str(tmp_path / "none")
    with pytest.raises(SourceError, match="does not exist") as error:
        list_folder(place)
    assert repr(place) in str(error.value)


def test_a_folder_that_is_a_file(tmp_path: Path) -> None:
    place = tmp_path / "a.jsonl"
    place.write_bytes(line())
    with pytest.raises(SourceError, match="is a file") as error:
        list_folder(str(place))
    assert repr(str(place)) in str(error.value)


def test_names_are_no_patterns(spark: SparkSession, tmp_path: Path) -> None:
    names = ["a*.jsonl", "ab.jsonl", "a[b].jsonl", "{a,b}.jsonl", "a?.jsonl", "a\\b.jsonl", "a b%20c#é😀.jsonl"]
    contents = {name: line(name, offset=offset) for offset, name in enumerate(names)}
    place = folder(tmp_path / "x[1]{y}*", contents)
    found = records(spark, list_folder(place).files).select(F.col("value").cast("string")).collect()
    assert sorted(row[0] for row in found) == sorted(names)


# ---- overlong lines


@pytest.mark.parametrize(
    ("content", "found"),
    [
        (b"x" * 3_000_000, 1),
        (b"a\nb\n" + b"x" * 3_000_000 + b"\n", 3),
        (b"a\n" * 400_000 + b"x" * 1_100_000 + b"\n" + b"x" * 2_500_000, 400_002),
        (b"x" * 1_900_000 + b"\n" + b"x" * 1_900_000, None),
        (b"a\n" * 2_000_000, None),
        (b"", None),
    ],
    ids=["all of it", "after two", "after many", "two that just pass", "many", "nothing"],
)
@pytest.mark.parametrize("compressed", [False, True])
def test_a_line_that_is_too_long(content: bytes, found: int | None, compressed: bool, tmp_path: Path) -> None:
    name = "a.jsonl.gz" if compressed else "a.jsonl"
    place = folder(tmp_path, {name: gzip.compress(content, 1) if compressed else content})
    assert overlong_line(list_folder(place).files, max_bytes=2_000_000) == (None if found is None else (name, found))


def test_a_file_that_opens_to_a_thousand_times_its_size(spark: SparkSession, paths: LakePaths, tmp_path: Path) -> None:
    packer = zlib.compressobj(9, zlib.DEFLATED, 31)
    bomb = b"".join([*(packer.compress(bytes(1 << 20)) for _ in range(520)), packer.flush()])
    assert len(bomb) < 1 << 20
    place = folder(tmp_path, {"bomb.jsonl.gz": bomb})
    with pytest.raises(SourceError, match=r"line 1 of bomb\.jsonl\.gz in .* is longer than 536870912 bytes"):
        ingest_new_files(Lake(spark, paths), place, "test")
    assert not Path(paths.home).exists() or not any(Path(paths.home).iterdir())


# ---- gzip

_WHOLE = gzip.compress(line() * 50)
_DAMAGED = _WHOLE[:-6] + bytes([_WHOLE[-6] ^ 1]) + _WHOLE[-5:]


@pytest.mark.parametrize(
    ("contents", "found"),
    [
        ([_WHOLE, _WHOLE], None),
        ([_WHOLE, _WHOLE[:-1]], "1.jsonl.gz"),
        ([_WHOLE[:-8], _WHOLE], "0.jsonl.gz"),
        ([_WHOLE[: len(_WHOLE) // 2]], "0.jsonl.gz"),
        ([_WHOLE[:5]], "0.jsonl.gz"),
        ([_DAMAGED], "0.jsonl.gz"),
        ([line()], "0.jsonl.gz"),
    ],
    ids=["whole", "one byte short", "no end mark", "half", "in the head", "damaged", "not compressed"],
)
def test_unfinished_gzip(contents: list[bytes], found: str | None, tmp_path: Path) -> None:
    place = folder(tmp_path, {f"{index}.jsonl.gz": content for index, content in enumerate(contents)})
    assert damaged_gzip(list_folder(place).files) == found


def test_only_gzip_files_are_looked_at(tmp_path: Path) -> None:
    place = Path(folder(tmp_path, {"a.jsonl": _WHOLE[:5]}))
    assert damaged_gzip((SourceFile(str(place / "a.jsonl"), 5, 0),)) is None
