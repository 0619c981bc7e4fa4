from __future__ import annotations

import os
import re
from pathlib import Path

import pyarrow as pa  # type: ignore[import-untyped]
import pytest
from deltalake import DeltaTable, write_deltalake
from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from cdc_pipeline.errors import LakeError
from cdc_pipeline.lake.paths import LakePaths, first_line, hadoop_path, is_for_delta_rs, path_segment
from cdc_pipeline.mysql.model.table import TableName

# identifier → its segment
_SEGMENTS = {
    "orders": "orders",
    "Orders": "Orders",
    "order lines": "order lines",
    "tab.le": "tab.le",
    "中文é": "中文é",
    "😀": "😀",
    "it's `q` & (x), y=1; $HOME ~ !+@": "it's `q` & (x), y=1; $HOME ~ !+@",
    "": "%",
    ".": "%2E",
    "..": "%2E.",
    "...": "%2E..",
    ".hidden": "%2Ehidden",
    "_delta_log": "%5Fdelta_log",
    "a/b": "a%2Fb",
    "/": "%2F",
    "%2F": "%252F",
    "%": "%25",
    "%%": "%25%25",
    "../../etc": "%2E.%2F..%2Fetc",
    "a\\b": "a%5Cb",
    "a:b": "a%3Ab",
    "a*b?": "a%2Ab%3F",
    '"<>|': "%22%3C%3E%7C",
    "{a,b}": "%7Ba,b%7D",
    "[x]^#": "%5Bx%5D%5E%23",
    "a\nb\0\t\x7f": "a%0Ab%00%09%7F",
}
_MORE = [
    "%2E",
    "%2e",
    "%5Fdelta_log",
    "a%2fb",
    "%252F",
    "_",
    "__",
    "._",
    "_.",
    "%2E.",
    "a/",
    "/a",
    " ",
    "  ",
    "a ",
    " a",
]


# longer than a file name may be, in pairs with the same prefix
_LONG = ["😀" * 64, "😀" * 63 + "😁", "x" * 201, "x" * 202, "x" + "/" * 67, "/" * 68, "xx" + "/" * 67, "\n" * 10_000]


def test_the_longest_names_of_mysql_are_kept() -> None:
    assert path_segment("中" * 64) == "中" * 64
    assert path_segment("/" * 64) == "%2F" * 64


def test_longer_names_fit_a_file_system_and_stay_different() -> None:
    segments = [path_segment(name) for name in _LONG]
    assert max(len(segment.encode()) for segment in segments) <= 200
    assert len(set(segments)) == len(_LONG)
    assert all(re.fullmatch(r"([^%]|%[0-9A-F]{2})+%~[0-9a-f]{32}", segment) for segment in segments)


@pytest.mark.parametrize(("identifier", "segment"), _SEGMENTS.items())
def test_path_segment(identifier: str, segment: str) -> None:
    assert path_segment(identifier) == segment


def test_different_identifiers_have_different_segments() -> None:
    identifiers = list(dict.fromkeys([*_SEGMENTS, *_MORE]))
    segments = [path_segment(identifier) for identifier in identifiers]
    assert len(set(segments)) == len(identifiers)


def test_a_segment_is_one_visible_path_segment() -> None:
    bad = [
        name
        for name in [*_SEGMENTS, *_MORE]
        if "/" in path_segment(name)
        or path_segment(name)[0] in "._"
        or re.search(r"[\x00-\x1f]", path_segment(name))
        or os.path.normpath(path_segment(name)) != path_segment(name)
    ]
    assert bad == []


def test_delta_rs_takes_the_paths_literally_that_it_gets(tmp_path: Path) -> None:
    found = [
        chr(code) for code in [*range(1, 0x180), 0x4E00, 0x1F600] if is_for_delta_rs(chr(code)) and chr(code) != "/"
    ]
    assert {"a", "é", " ", "=", "~"} <= set(found)
    for character in found:
        name = f"a{character}b"
        write_deltalake(str(tmp_path / name), pa.table({"x": [1]}))
        assert (tmp_path / name / "_delta_log").is_dir(), name
        assert DeltaTable.is_deltatable(str(tmp_path / name)), name
    assert not any(
        map(is_for_delta_rs, ("a%20b", "a[b", "a\\b", "a\tb", "s3a://bucket/a%20b", "hdfs://host/lake", "file:/lake"))
    )


def test_a_delta_table_can_lie_at_any_name(spark: SparkSession, tmp_path: Path) -> None:
    paths = LakePaths(str(tmp_path / "the lake"), "shop")
    names = [TableName("../../etc", "a/b"), TableName("..", "%2F"), TableName("_x", "`q\n'中😀 a.b[1]{2}*?:#&+;=")]
    for value, name in enumerate(names):
        spark.range(value, value + 1).write.format("delta").save(paths.mirror(name))
    assert [spark.read.format("delta").load(paths.mirror(name)).collect()[0][0] for name in names] == [0, 1, 2]
    logs = {str(log.parent.relative_to(tmp_path)) for log in tmp_path.rglob("_delta_log")}
    assert logs == {
        "the lake/shop/mirror/%2E.%2F..%2Fetc/a%2Fb",
        "the lake/shop/mirror/%2E./%252F",
        "the lake/shop/mirror/%5Fx/`q%0A'中😀 a.b%5B1%5D%7B2%7D%2A%3F%3A%23&+;=",
    }


@pytest.mark.parametrize(
    ("root", "home", "is_local"),
    [
        ("/data/lake", "/data/lake/shop", True),
        ("/data/../lake/", "/lake/shop", True),
        ("hdfs://name:8020/lake/", "hdfs://name:8020/lake/shop", False),
        ("s3a://bucket/lake", "s3a://bucket/lake/shop", False),
        ("file:/data/lake", "file:/data/lake/shop", False),
    ],
)
def test_home(root: str, home: str, is_local: bool) -> None:
    paths = LakePaths(root, "shop")
    assert (paths.home, paths.is_local) == (home, is_local)


def test_a_relative_lake_lies_below_the_working_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    assert LakePaths("data/lake", "shop").home == str(tmp_path / "data" / "lake" / "shop")


def test_layout() -> None:
    paths = LakePaths("/lake", "shop")
    name = TableName("db", "a/b")
    assert (paths.table("change_log"), paths.mirror(name), paths.dropped_mirror(name, "7")) == (
        "/lake/shop/change_log",
        "/lake/shop/mirror/db/a%2Fb",
        "/lake/shop/dropped/db/a%2Fb@7",
    )
    assert paths.mirror_folder(name, "db.a/b@7") == paths.mirror(name)
    remote = LakePaths("s3a://bucket/lake", "shop")
    assert remote.mirror_folder(name, "db.a/b@7") == "s3a://bucket/lake/shop/mirrors/db.a%2Fb@7"
    with pytest.raises(AssertionError):
        remote.mirror(name)


def test_a_remote_lake_that_cannot_be_written(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    root = f"file:{tmp_path}/file/lake"
    with pytest.raises(LakeError) as error:
        LakePaths(root, "shop").require_writable(spark)
    assert str(error.value).startswith(f"the lake {root!r} cannot be written: ")
    assert "An error occurred while calling" not in str(error.value)


def test_first_line(spark: SparkSession) -> None:
    with pytest.raises(Py4JJavaError) as error:
        hadoop_path(spark, "no-such-scheme://x/y")
    assert first_line(error.value) == (
        'org.apache.hadoop.fs.UnsupportedFileSystemException: No FileSystem for scheme "no-such-scheme"'
    )
    assert [first_line(ValueError(text)) for text in ("one\ntwo", "\n one", "")] == ["one", "one", "ValueError"]
