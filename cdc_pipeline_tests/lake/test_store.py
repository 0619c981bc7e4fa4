"""Files of lakes without Spark: each case with a local folder and on S3."""

from __future__ import annotations

import threading
import uuid
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from cdc_pipeline.errors import LakeError, TransientError
from cdc_pipeline.lake.catalog import CatalogEntry, read_catalog, write_catalog
from cdc_pipeline.lake.control_tables import append_rows, compact_rows, overwrite_rows, read_rows
from cdc_pipeline.lake.delta import Commit
from cdc_pipeline.lake.delta_log import only_writer
from cdc_pipeline.lake.lake import Lake
from cdc_pipeline.lake.log_files import commits_newest_first, has_version
from cdc_pipeline.lake.paths import LakePaths
from cdc_pipeline.lake.small_tables import open_small_table
from cdc_pipeline.lake.store import file_names, read_file, storage_options, write_file
from cdc_pipeline.sources.raw_batches import newest_note
from cdc_pipeline_tests.support.servers.object_store import BUCKET, ObjectStore

_NO_SPARK: Any = None


@pytest.fixture(params=["local", "s3"])
def lake(request: pytest.FixtureRequest, tmp_path: Path) -> Lake:
    if request.param == "s3":
        request.getfixturevalue("s3")
        root = f"s3a://{BUCKET}/{uuid.uuid4().hex} ü"
    else:
        root = str(tmp_path / "lake ü")
        (tmp_path / "lake ü" / "shop").mkdir(parents=True)
    return Lake(_NO_SPARK, LakePaths(root, "shop"))


def _commit(version: int, note: dict[str, Any] | None = None) -> Commit:
    return Commit("cdc:shop:raw", version, note or {})


def test_files(lake: Lake) -> None:
    home = lake.paths.home
    assert (read_file(home, "a.json"), file_names(f"{home}/nothing")) == (None, [])
    write_file(home, "a.json", "é")
    write_file(home, "a.json", "中")
    assert (read_file(home, "a.json"), file_names(home)) == ("中".encode(), ["a.json"])


def test_the_catalog(lake: Lake) -> None:
    assert read_catalog(lake.paths) == ()
    entry = CatalogEntry("shop", "orders", "path", ())
    write_catalog(lake.paths, [entry])
    assert read_catalog(lake.paths) == (entry,)


def test_control_tables(lake: Lake) -> None:
    assert read_rows(lake, "batches") == []
    for number in (1, 2, 2, 3):  # the second commit of 2 is skipped
        append_rows(lake, "batches", pa.table({"batch_id": [number], "texts": [["a"] * number]}), _commit(number))
    assert sorted(row["batch_id"] for row in read_rows(lake, "batches", ("batch_id", ">=", 2))) == [2, 3]
    assert compact_rows(lake, "batches")
    assert sorted(row["batch_id"] for row in read_rows(lake, "batches")) == [1, 2, 3]
    overwrite_rows(lake, "batches", pa.table({"batch_id": [9]}), _commit(4))
    assert read_rows(lake, "batches") == [{"batch_id": 9}]


def test_a_table_that_only_this_process_writes_is_looked_at_once(lake: Lake, request: pytest.FixtureRequest) -> None:
    path, is_s3 = lake.paths.table("batches"), lake.paths.is_s3

    def ids() -> list[int]:
        return sorted(row["id"] for row in read_rows(lake, "batches"))

    def append(number: int) -> None:
        append_rows(lake, "batches", pa.table({"id": [number]}), _commit(number))

    with only_writer(lake.paths):
        assert ids() == ids() == []
        for number in (1, 2):
            append(number)
            assert ids() == list(range(1, number + 1))
        in_thread = threading.Thread(target=append, args=(3,))
        in_thread.start()
        in_thread.join()
        assert ids() == [1, 2, 3]
        if is_s3:
            log = request.getfixturevalue("s3").log
            before = log.read_bytes()
            assert ids() == [1, 2, 3]
            assert log.read_bytes() == before
        write_deltalake(path, pa.table({"id": [4]}), mode="append", storage_options=storage_options(path))
        assert ids() == ([1, 2, 3] if is_s3 else [1, 2, 3, 4])
        append(5)  # over the commit that it has not seen
        assert ids() == [1, 2, 3, 4, 5]
        assert compact_rows(lake, "batches")
        assert ids() == [1, 2, 3, 4, 5]
    write_deltalake(path, pa.table({"id": [6]}), mode="append", storage_options=storage_options(path))
    with only_writer(lake.paths):
        assert ids() == [1, 2, 3, 4, 5, 6]


def test_two_writers_of_a_control_table(lake: Lake) -> None:
    def write(writer: str) -> None:
        for number in range(1, 6):
            commit = Commit(writer, number, {})
            append_rows(lake, "batches", pa.table({"writer": [writer], "number": [number]}), commit)

    write("first")
    threads = [threading.Thread(target=write, args=(name,)) for name in ("second", "third")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    rows = sorted((row["writer"], row["number"]) for row in read_rows(lake, "batches"))
    assert rows == [(writer, number) for writer in ("first", "second", "third") for number in range(1, 6)]


def test_notes_of_raw_batches(lake: Lake) -> None:
    assert newest_note(lake.paths) is None
    for number in (1, 2):
        note = {"batch": number, "run_id": f"run-{number}"}
        append_rows(lake, "raw_topic_snapshot", pa.table({"batch_id": [number]}), _commit(number, note))
    found = newest_note(lake.paths)
    assert found is not None
    assert (found["batch"], found["run_id"]) == (2, "run-2")
    table = lake.paths.table("raw_topic_snapshot")
    assert [commit.version for commit in commits_newest_first(table)] == [1, 0]
    assert [has_version(table, version) for version in (0, 1, 2)] == [True, True, False]


def test_small_tables_are_replaced(lake: Lake) -> None:
    path = lake.paths.table("watermarks")
    append_rows(lake, "watermarks", pa.table({"id": [1, 2], "text": ["a", None]}), _commit(1))
    small = open_small_table(path)
    assert small is not None
    rows = pa.table({"id": [2, 3], "text": ["b", "é"]})
    small.replace(rows.cast(small.rows.schema), _commit(2))
    found = open_small_table(path)
    assert found is not None
    assert (found.rows.to_pylist(), found.count_rows()) == (rows.to_pylist(), 2)
    with pytest.raises(TransientError, match="another process has changed the table"):
        small.replace(rows.cast(small.rows.schema), _commit(3))


def test_a_bucket_that_does_not_exist(s3: ObjectStore) -> None:  # noqa: ARG001 - the server
    lake = Lake(_NO_SPARK, LakePaths("s3a://no-such-bucket/lake", "shop"))
    for use in (partial(read_file, lake.paths.home, "a.json"), partial(write_file, lake.paths.home, "a.json", "")):
        with pytest.raises(LakeError, match="NoSuchBucket"):
            use()
