"""Large messages in the complete pipeline: mirrors equal those of plain messages, also after a rebuild.

The records are those of `data/captures/shop` up to a watermark at which the true tables are known.
"""

from __future__ import annotations

import base64
import json
import random
import shutil
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from cdc_pipeline.dialects.claim_files import ClaimStore, file_name
from cdc_pipeline.dialects.claims import CONTENT, PROBLEM
from cdc_pipeline.dialects.contents import inspect_values, with_contents
from cdc_pipeline.dialects.decode import decode
from cdc_pipeline.dialects.decoded_tables import DecodeSettings, decode_batches
from cdc_pipeline.lake.delta import Commit, table_state
from cdc_pipeline.lake.lake import Lake
from cdc_pipeline.lake.paths import LakePaths
from cdc_pipeline.mirrors.cuts.cut_maker import CutMaker
from cdc_pipeline.mirrors.cuts.totals import lake_balance
from cdc_pipeline.mirrors.operations.rebuild import Rebuilder
from cdc_pipeline.mysql.model.table import TableName
from cdc_pipeline.sources.capture_files.source import ingest_new_files
from cdc_pipeline_tests.support.captures import capture_lines
from cdc_pipeline_tests.support.dialect_cases import raw
from cdc_pipeline_tests.support.lakes.pipelines import ingest
from cdc_pipeline_tests.support.lakes.runs import mirror_differences
from cdc_pipeline_tests.support.large_messages import (
    CODECS,
    handle_key_message,
    in_json,
    lz4,
    plain,
    snappy,
    with_value,
    write_records,
)
from cdc_pipeline_tests.support.messages import ddl, record_line, row, watermark
from cdc_pipeline_tests.support.shop import CAPTURE

_WATERMARK = 470613720195661824
_LAST = 327
"""The line at which all partitions have the watermark."""
_RULE = "claim_is_resolved"


@pytest.fixture(scope="module")
def records() -> list[dict[str, Any]]:
    return [json.loads(line) for line in capture_lines(CAPTURE)[:_LAST]]


@pytest.fixture(scope="module")
def truth() -> dict[str, Any]:
    with (CAPTURE / "expected_at_watermarks.jsonl").open(encoding="utf-8") as stream:
        tables: dict[str, Any] = next(
            line["tables"] for line in map(json.loads, stream) if line["watermark"] == _WATERMARK
        )
    return tables


def _wrong(spark: SparkSession, paths: LakePaths, truth: dict[str, Any]) -> dict[str, list[str]]:
    found = {
        table: mirror_differences(spark, paths, TableName(*table.split(".", 1)), wanted["columns"], wanted["rows"])
        for table, wanted in truth.items()
    }
    return {table: lines for table, lines in found.items() if lines}


def _letters(spark: SparkSession, paths: LakePaths) -> list[Any]:
    return spark.read.format("delta").load(paths.table("dead_letters")).orderBy("offset").collect()


def _rebuilt(spark: SparkSession, paths: LakePaths, claim_store: str | None = None) -> Any:
    return Rebuilder(
        CutMaker(Lake(spark, paths), "again", "UTC", 2, lambda _: None), DecodeSettings(claim_store=claim_store)
    ).rebuild()


# ---- the plan of a batch


def _contents(spark: SparkSession, frame: DataFrame, folder: Path, *, store: bool, is_plain: bool) -> DataFrame:
    note = {"plain": is_plain, "offsets": [("shop", 0, 1, 9, 9)]}
    commit = Commit("cdc:shop:claims", 1, {"batch": 1})
    claim_store = str(folder / "store") if store else None
    paths = LakePaths(str(folder), "shop")
    look = inspect_values(Lake(spark, paths), frame, note, claim_store)
    return with_contents(Lake(spark, paths), frame, look, commit, claim_store, begun=False)


def _plan(frame: DataFrame) -> str:
    return str(frame._jdf.queryExecution().executedPlan().toString())


@pytest.mark.parametrize("store", [False, True])
def test_a_plain_batch_has_no_python_in_its_plan(spark: SparkSession, tmp_path: Path, store: bool) -> None:
    message = row("INSERT", "t", 1, {"id": "1"}, key=["id"]).encode()
    plain_batch = raw(spark, {"a": message, "b": None, "c": b"", "d": b" {\n}"})
    found = _contents(spark, plain_batch, tmp_path, store=store, is_plain=False)
    assert found is plain_batch
    assert "EvalPython" not in _plan(decode(found))
    packed_batch = raw(spark, {"a": message, "b": snappy(message)})
    assert _contents(spark, packed_batch, tmp_path, store=store, is_plain=True) is packed_batch
    opened = _contents(spark, packed_batch, tmp_path, store=store, is_plain=False)
    assert _plan(decode(opened)).count("ArrowEvalPython") == 1
    assert not {CONTENT, PROBLEM} & set(decode(opened).columns)


# ---- claim checks


def _key_of(message: dict[str, Any]) -> list[str]:
    """The handle key: of `payments` a UNIQUE NOT NULL key, of `page_views` none."""
    return ["payment_ref"] if message["table"] == "payments" else list(message["pkNames"])


def _checked(message: str, store: Path, form: Callable[[bytes], bytes], codec: Callable[[bytes], bytes]) -> str:
    """Writes a message into the store and returns its reference."""
    name = f"{uuid.uuid4()}.json"
    (store / name).write_bytes(form(codec(message.encode())))
    return handle_key_message(message, _key_of(json.loads(message)), claimCheckLocation=f"s3://bucket/claims/{name}")


def _may_be_large(record: dict[str, Any]) -> bool:
    message = json.loads(record["payload"])
    return message["type"] in ("INSERT", "UPDATE", "DELETE") and bool(_key_of(message))


def test_compressed_values_and_claims_give_the_same_mirrors(
    spark: SparkSession, tmp_path: Path, paths: LakePaths, records: list[dict[str, Any]], truth: dict[str, Any]
) -> None:
    """All values, including DDL and watermarks, are LZ4 in partition 0, Snappy in 1, and mixed in the others. Some are
    references. Files have both forms, plain and compressed, in a folder whose name has glob characters. A rebuild needs no
    files.
    """
    source = random.Random(1)
    store = tmp_path / "st[o]re {a,b} *"
    store.mkdir()
    codecs = {0: (lz4,), 1: (snappy,)}
    ways = [(form, codec) for form in (in_json, plain) for codec in CODECS]
    large = source.sample([place for place, record in enumerate(records) if _may_be_large(record)], 24)
    sent = []
    for place, record in enumerate(records):
        value = record["payload"]
        if place in large:
            value = _checked(value, store, *ways[large.index(place) % len(ways)])
        codec = source.choice(codecs.get(record["partition"], CODECS))
        sent.append(with_value(record, codec(value.encode())))
    report = ingest(spark, paths, write_records(tmp_path / "captures", sent), claim_store=str(store))
    assert report.resolved_tso == _WATERMARK
    assert _wrong(spark, paths, truth) == {}
    assert _letters(spark, paths) == []
    assert all(not mirror.gaps for mirror in report.mirrors)
    raw_table = spark.read.format("delta").load(paths.table("raw_topic_snapshot"))
    kept = {(row["partition"], row["offset"]): bytes(row["value"]) for row in raw_table.collect()}
    assert kept == {
        (record["partition"], record["offset"]): base64.b64decode(record["payload_base64"]) for record in sent
    }
    claims = spark.read.format("delta").load(paths.table("claims"))
    assert claims.columns == ["batch_id", "topic", "partition", "offset", "location", "content"]
    found = [bytes(row["content"]) for row in claims.collect()]
    assert sorted(found) == sorted(path.read_bytes() for path in store.iterdir())
    shutil.rmtree(store)
    rebuilt = _rebuilt(spark, paths, str(store))
    assert rebuilt.all_equal
    assert rebuilt.cut_id is None


def _story(*sent: str | bytes) -> list[dict[str, Any]]:
    """DDL of two tables, one change of each, the given messages, and a watermark."""
    columns = "(id INT PRIMARY KEY, v TEXT)"
    messages = [
        *(ddl(f"CREATE TABLE {table} {columns}", 1, table=table, kind="CREATE") for table in ("t", "u")),
        *(row("INSERT", table, 2, {"id": "0", "v": "whole"}, key=["id"]) for table in ("t", "u")),
        *sent,
        watermark(99),
    ]
    records = []
    for offset, message in enumerate(messages):
        record = json.loads(record_line("", offset=offset))
        records.append(with_value(record, message if isinstance(message, bytes) else message.encode()))
    return records


def _change(number: int, kind: str = "INSERT") -> str:
    return row(kind, "t", 10 + number, {"id": str(number), "v": f"v{number}"}, key=["id"])


def _reference(number: int, location: str) -> str:
    return handle_key_message(_change(number), ["id"], claimCheckLocation=location)


_GOOD_NAME = "0a1b-good.json"
# location → part of its reason, with the files of `_hostile_store`
_HOSTILE = {
    "file:///etc/passwd": "it does not, so nothing was looked up",
    "../../outside.json": "it does not exist",
    "file:///tmp/store/../outside.json": "it does not exist",
    "": "it does not, so nothing was looked up",
    "s3://bucket/": "it does not, so nothing was looked up",
    "%2e%2e%2foutside.json": "it does not, so nothing was looked up",
    "s3://b/..%2foutside.json": "it does not, so nothing was looked up",
    "s3://b/*.json": "it does not, so nothing was looked up",
    "s3://b/?a1b-good.json": "it does not, so nothing was looked up",
    "s3://b/[0]a1b-good.json": "it does not, so nothing was looked up",
    "s3://b/{0a1b-good,x}.json": "it does not, so nothing was looked up",
    "s3://b/0a1b-good.json\n": "it does not, so nothing was looked up",
    "s3://b/\n0a1b-good.json": "it does not, so nothing was looked up",
    "s3://b/.hidden.json": "it does not, so nothing was looked up",
    "s3://b/..": "it does not, so nothing was looked up",
    "s3://b/0a1b-good.json?x=1": "it does not, so nothing was looked up",
    "s3://b/..\\outside.json": "it does not, so nothing was looked up",
    "s3://b/é.json": "it does not, so nothing was looked up",
    "s3://b/" + "x" * 10_000 + "/" + _GOOD_NAME: "it does not, so nothing was looked up",
    "s3://b/" + "x" * 10_000 + ".json": "it does not, so nothing was looked up",
    "s3://key:hush@b/missing.json": "it does not exist",
    "s3://b/folder.json": "it is a folder",
    "s3://b/other-row.json": "found there: INSERT of db.t at commitTs ",
    "s3://b/other-table.json": "found there: INSERT of db.u at commitTs ",
    "s3://b/same-commit.json": ", another row",
    "s3://b/reference.json": "found there: another reference",
    "s3://b/garbage.json": "found there: no Canal-JSON message",
    "s3://b/cut.json": "found there: no Canal-JSON message",
    "s3://b/no-base64.json": "found there: no Canal-JSON message",
    "s3://b/bomb.json": "found there: no Canal-JSON message",
    "s3://b/empty.json": "it is empty",
    "s3://b/ddl.json": "found there: ALTER of db.t at commitTs ",
}


def _hostile_store(folder: Path) -> Path:
    store = folder / "store"
    store.mkdir()
    message = _change(1).encode()
    # files outside the store, or hidden in it, that would resolve their references
    places = {location: number for number, location in enumerate(_HOSTILE, start=1)}
    (folder / "outside.json").write_bytes(_change(places["../../outside.json"]).encode())
    (store / ".hidden.json").write_bytes(_change(places["s3://b/.hidden.json"]).encode())
    (store / "folder.json").mkdir()
    (store / "other-row.json").write_bytes(in_json(lz4(message)))
    (store / "other-table.json").write_bytes(
        row("INSERT", "u", 10 + places["s3://b/other-table.json"], {"id": "1", "v": "x"}, key=["id"]).encode()
    )
    same_commit = row("INSERT", "t", 10 + places["s3://b/same-commit.json"], {"id": "1", "v": "x"}, key=["id"])
    (store / "same-commit.json").write_bytes(same_commit.encode())
    (store / "reference.json").write_bytes(_reference(places["s3://b/reference.json"], f"s3://b/{_GOOD_NAME}").encode())
    (store / "garbage.json").write_bytes(bytes(range(256)))
    (store / "cut.json").write_bytes(in_json(snappy(message)[:-5]))
    (store / "no-base64.json").write_bytes(b'{"key":null,"value":"#"}')
    (store / "bomb.json").write_bytes(lz4(b" " * (257 << 20)))
    (store / "empty.json").write_bytes(b"")
    (store / "ddl.json").write_bytes(ddl("ALTER TABLE t ADD x INT", 10 + places["s3://b/ddl.json"], table="t").encode())
    (store / _GOOD_NAME).write_bytes(in_json(_change(0).encode()))
    return store


def test_hostile_and_broken_references_stop_nothing_but_themselves(
    spark: SparkSession, tmp_path: Path, paths: LakePaths
) -> None:
    store = _hostile_store(tmp_path)
    sent = [_reference(number, location) for number, location in enumerate(_HOSTILE, start=1)]
    good = row("INSERT", "t", 10, {"id": "77", "v": "v"}, key=["id"])
    (store / "whole.json").write_bytes(in_json(good.encode()))
    sent.append(handle_key_message(good, ["id"], claimCheckLocation="s3://b/whole.json"))
    captures = write_records(tmp_path / "captures", _story(*sent))
    report = ingest(spark, paths, captures, claim_store=str(store))
    letters = _letters(spark, paths)
    reasons = {
        json.loads(letter["value"])["_tidb"]["claimCheckLocation"]: (letter["rule"], letter["table"], letter["reason"])
        for letter in letters
    }
    assert len(letters) == len(_HOSTILE)
    assert [
        (location, reasons[location])
        for location, words in _HOSTILE.items()
        if reasons[location][:2] != (_RULE, "t")
        or words not in reasons[location][2]
        or not reasons[location][2].startswith("expected: ")
        or "hush" in reasons[location][2]
    ] == []
    gaps = {str(mirror.name): mirror.gaps for mirror in report.mirrors}
    assert gaps["db.u"] == ()
    assert gaps["db.t"] == (f"{len(_HOSTILE)} record(s) are dead letters of rule {_RULE}, the first at t/0@4",)
    mirrors = {
        table: {
            tuple(row)[:2] for row in spark.read.format("delta").load(paths.mirror(TableName("db", table))).collect()
        }
        for table in ("t", "u")
    }
    assert mirrors == {"t": {(0, "whole"), (77, "v")}, "u": {(0, "whole")}}
    assert lake_balance(Lake(spark, paths)).is_balanced
    # the missing file exists now: a rebuild copies it. Kept claims stay, broken references stay dead letters
    missing = list(_HOSTILE).index("s3://key:hush@b/missing.json") + 1
    (store / "missing.json").write_bytes(_change(missing).encode())
    rebuilt = _rebuilt(spark, paths, str(store))
    assert {table.table for table in rebuilt.tables if not table.equal} == {
        *("change_log", "dead_letters", "batches", "mirror/db.t"),
    }
    now = {letter["offset"]: letter["reason"] for letter in _letters(spark, paths)}
    assert now == {letter["offset"]: letter["reason"] for letter in letters if letter["offset"] != 3 + missing}


def test_without_a_store_and_with_one_that_is_not_there(spark: SparkSession, tmp_path: Path) -> None:
    captures = write_records(tmp_path / "captures", _story(_reference(1, "s3://b/1.json"), _reference(2, "s3://b/a b")))
    found = {}
    for name, store in (("none", None), ("gone", str(tmp_path / "gone")), ("unknown", "nosuch://key:hush@host/x")):
        paths = LakePaths(str(tmp_path / name), "shop")
        ingest_new_files(Lake(spark, paths), str(captures), "test")
        decode_batches(Lake(spark, paths), DecodeSettings(claim_store=store))
        found[name] = [(letter["rule"], letter["reason"]) for letter in _letters(spark, paths)]
        assert table_state(spark, paths.table("claims")) is None
    start = "expected: the complete row, in the message or in the claim-check file that it refers to; "
    file = "expected: the complete message in the file 1.json of the claim store"
    assert [reason for _, reason in found["none"]] == [
        f"{start}no claim_store is configured to look up the file 1.json",
        f"{start}no claim_store is configured to look up a location without a plain file name",
    ]
    assert found["gone"][0][1] == f"{file} {tmp_path}/gone; it does not exist"
    assert found["unknown"][0][1] == (f"{file} nosuch://…; the store cannot be opened (UnsupportedFileSystemException)")
    assert {rule for letters in found.values() for rule, _ in letters} == {_RULE}


@pytest.mark.parametrize(
    ("uri", "shown"),
    [
        ("/data/claims", "/data/claims"),
        ("claims@home?#", "claims@home?#"),
        ("s3a://bucket/claims", "s3a://bucket/claims"),
        ("s3a://key:hu/sh@bucket/claims", "s3a://…"),
        ("s3://bucket/claims?access-key=key&secret-access-key=hush@x", "s3://…"),
    ],
)
def test_a_store_is_shown_without_what_is_secret(spark: SparkSession, uri: str, shown: str) -> None:
    assert ClaimStore(spark, uri).shown == shown


def test_names_of_files() -> None:
    assert file_name(f"s3://bucket/a/{_GOOD_NAME}") == _GOOD_NAME
    assert file_name("3f2504e0-4f89-11d3-9a0c-0305e82c3301.json") == "3f2504e0-4f89-11d3-9a0c-0305e82c3301.json"
    assert file_name("x" * 300 + ".json") is None
