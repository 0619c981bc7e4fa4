"""Captures of real encoders, and small ones in the shape of public bug reports (`world-…`): all tables equal the source's,
value by value, with the listed exceptions."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from cdc_pipeline.lake.lake import Lake
from cdc_pipeline.lake.paths import LakePaths
from cdc_pipeline.mirrors.changes.progress import NO_CUT, published_cut
from cdc_pipeline.mirrors.cuts.cut_report import MirrorEntry
from cdc_pipeline.mirrors.cuts.totals import lake_balance
from cdc_pipeline.mirrors.model.state import UNSEEN_LOAD
from cdc_pipeline.mirrors.operations.verification import Verifier
from cdc_pipeline.mirrors.settings.cut_settings import CutSettings
from cdc_pipeline_tests.support.lakes.pipelines import ingest
from cdc_pipeline_tests.support.lakes.truth import differences

CAPTURES = Path(__file__).parents[2] / "data" / "captures"
# `shop` has its own tests (`test_shop`, `test_slices`)
NAMES = sorted(folder.name for folder in CAPTURES.iterdir() if folder.name != "shop")


@dataclass(frozen=True)
class Excused:
    """Why a table cannot equal the source's yet. With `columns`, only these values are skipped."""

    reason: str
    columns: frozenset[str] = field(default_factory=frozenset)


_NOT_SENT = "Canal did not send the information: README of the capture"

# These captures run in part in `make test`, and whole where marked `long`. Of `types-canal-hash3` the part has tables in
# several partitions; `types-canal` covers the others.
_IN_PART: dict[str, frozenset[str]] = {
    "shop-canal": frozenset(("customers", "products", "page_views", "coupons", "vouchers", "")),
    "types-canal-hash3": frozenset(
        ("acct", "chain", "child", "cpk", "ctas2", "parent", "ri", "s1", "s2", "s_tmp", "st", "")
    ),
}

# Capture → table → why it differs. The test fails if a listed table is equal.
_OF_CANAL = {
    "lab1.acct": Excused(f"{_NOT_SENT} (rows of an XA transaction that was rolled back)"),
    "lab1.st": Excused(f"{_NOT_SENT} (changes logged as statements)"),
    "lab1.ri": Excused(f"{_NOT_SENT} (MINIMAL row images)"),
    "lab1.pjson": Excused(f"{_NOT_SENT} (PARTIAL_JSON)"),
    "lab1.types": Excused(
        f"{_NOT_SENT} (text in latin1, gbk and utf16; noise in DOUBLE(10,4))",
        frozenset({"vl1", "vgbk", "vuc", "d104"}),
    ),
}
EXCEPTIONS: dict[str, dict[str, Excused]] = {
    "types-canal": _OF_CANAL,
    "types-canal-hash3": {
        **_OF_CANAL,
        "lab1.s1": Excused(f"{_NOT_SENT} (the order of a row and a rename in a circle, in one batch and second)"),
    },
    "random-canal-mariadb": {
        "lab.l52": Excused("a zero date became text, which the mirror does not have"),
        "shop.r92": Excused("servers convert TINYINT to JSON and TIME to DATE differently"),
        "shop.t59": Excused(f"{_NOT_SENT} (text in latin1)"),
    },
    "world-canal-blackhole": {
        f"relay.{name}": Excused(f"{_NOT_SENT} (ENGINE=BLACKHOLE stores none of the rows)")
        for name in ("sink", "was", "back")
    },
    "world-canal-foreign-key-cascade": {
        f"crm.{name}": Excused(f"{_NOT_SENT} (row changes of its foreign key)") for name in ("bill", "line", "visit")
    },
    "world-canal-json-text": {
        "doc.odd_keys": Excused(f"{_NOT_SENT} (a quote in a JSON key has no escape, so the row is a dead letter)")
    },
    "world-canal-lost-ddl": {
        f"ci.{table}": Excused(f"{_NOT_SENT} (a DROP COLUMN, so values are under other names)")
        for table in ("jobs", "shifts")
    },
    "world-ticdc-lost-utf8": {
        "lu.lost": Excused("TiCDC sends a byte that is not UTF-8 as U+FFFD", frozenset({"w"})),
    },
}
# Capture `world-…` → tables that equal the source's and have a gap all the same. The test fails if a listed table has none.
FLAGGED: dict[str, frozenset[str]] = {
    # without a key: equal rows came again with their former time
    "world-canal-point-in-time-recovery": frozenset({"acc.log"}),
    # a column that no message has; an UPDATE without its key
    "world-canal-update-without-old": frozenset({"erp.stock_item", "erp.order_head"}),
}
# Capture → tables whose before images show that changes are missing. They get their gap when they are verified.
CONTRADICTED: dict[str, frozenset[str]] = {"world-canal-lost-ddl": frozenset({"ci.jobs", "ci.shifts"})}
# The mirror differs in the text of a DOUBLE alone. No gap can report it, because the encoder changed the value.
_NO_GAP_NEEDED = frozenset({"d104"})


@dataclass
class Ingested:
    name: str
    paths: LakePaths
    truth: dict[str, Any]
    mirrors: dict[str, MirrorEntry]


def _ingested(spark: SparkSession, name: str, folder: Path, part: frozenset[str] | None) -> Ingested:
    """A lake of the capture, or of the messages of some tables and the messages without a table."""
    captures, paths = CAPTURES / name, LakePaths(str(folder / "lake"), name.replace("-", "_"))
    truth = _truth(name)
    if part is not None:
        truth = {table: found for table, found in truth.items() if table.split(".", 1)[1] in part}
        with gzip.open(captures / "records.jsonl.gz", "rt", encoding="utf-8", newline="\n") as lines:
            kept = [line for line in lines if json.loads(json.loads(line)["payload"])["table"] in part]
        captures = folder / "captures"
        captures.mkdir()
        (captures / "records.jsonl").write_text("".join(kept), encoding="utf-8", newline="\n")
    report = ingest(spark, paths, captures)
    return Ingested(name, paths, truth, {str(entry.name): entry for entry in report.mirrors})


def _truth(name: str) -> dict[str, Any]:
    """The expected tables of a capture: name → columns and rows."""
    tables: dict[str, Any] = json.loads(gzip.decompress((CAPTURES / name / "expected.json.gz").read_bytes()))["tables"]
    return tables


# promise 14 is about tables that cannot be equal: both captures of Canal have some
_IN_CORE = {
    "shop-canal": pytest.mark.core(4, 6),
    "shop-dataworks": pytest.mark.core(6, 14),
    "types-canal-hash3": pytest.mark.core(3, 14),
}


def _parameter(name: str) -> Any:
    """The parameter of a capture. Each capture is its own scope, because the largest takes minutes."""
    marks = [pytest.mark.xdist_group(name)]
    return pytest.param(name, marks=[*marks, _IN_CORE[name]] if name in _IN_CORE else marks)


@pytest.fixture(scope="module", params=map(_parameter, NAMES))
def capture(request: pytest.FixtureRequest, spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Ingested:
    """The lake of a capture. pytest runs all tests of a capture before it ingests the next one."""
    name: str = request.param
    return _ingested(spark, name, tmp_path_factory.mktemp(name), _IN_PART.get(name))


def test_tables_equal_the_source(capture: Ingested, spark: SparkSession) -> None:
    assert_equal(capture, spark)


def test_changes_prove_their_rows(capture: Ingested, spark: SparkSession, counted: Callable[[str, int], None]) -> None:
    """No change contradicts its row, but where changes are missing."""
    lake = Lake(spark, capture.paths)
    found = Verifier(lake, CutSettings("UTC"), print).check(NO_CUT, published_cut(lake))
    counted("row changes", sum(one.changes for one, _ in found.values()))
    counted("row changes that proved their row", sum(one.proved for one, _ in found.values()))
    with_gap = {str(name) for name, (_, gap) in found.items() if gap is not None}
    assert with_gap == CONTRADICTED.get(capture.name, frozenset()), found


@pytest.mark.long
@pytest.mark.parametrize("name", _IN_PART)
def test_all_tables_equal_the_source(name: str, spark: SparkSession, tmp_path: Path) -> None:
    capture = _ingested(spark, name, tmp_path, None)
    assert_equal(capture, spark)
    assert set(capture.mirrors) == set(capture.truth)
    assert lake_balance(Lake(spark, capture.paths)).is_balanced


def assert_equal(capture: Ingested, spark: SparkSession) -> None:
    """Each table equals the source's, or is listed. A listed table differs, and has a gap or gets one by verification."""
    exceptions, contradicted = EXCEPTIONS.get(capture.name, {}), CONTRADICTED.get(capture.name, frozenset())
    wrong: dict[str, list[str]] = {}
    for name, truth in capture.truth.items():
        entry, exception = capture.mirrors.get(name), exceptions.get(name)
        if entry is None:
            wrong[name] = ["there is no mirror"]
            continue
        mirror = spark.read.format("delta").load(entry.path)
        dataworks = "dataworks" in capture.name

        def compared(
            without: frozenset[str], mirror: Any = mirror, truth: Any = truth, ms: bool = dataworks
        ) -> list[str]:
            return differences(mirror, truth["columns"], truth["rows"], without=without, milliseconds=ms)

        if exception is None:
            wrong[name] = compared(frozenset())
            continue
        if exception.columns:
            wrong[name] = compared(exception.columns)
        if not compared(frozenset()):
            wrong[name] = [f"is equal now: take it off the list of exceptions ({exception.reason})"]
        elif not entry.gaps and name not in contradicted and exception.columns != _NO_GAP_NEEDED:
            wrong[name] = ["differs, and has no gap"]
    assert {name: lines for name, lines in wrong.items() if lines} == {}


def test_foreign_keys_have_a_gap_where_their_row_changes_are_missing(capture: Ingested) -> None:
    """Others of Canal's captures have foreign keys whose row changes the application made."""
    with_gap = {name for name, entry in capture.mirrors.items() if any("foreign key" in gap for gap in entry.gaps)}
    is_cascade = capture.name == "world-canal-foreign-key-cascade"
    assert with_gap == ({"crm.bill", "crm.line", "crm.visit"} if is_cascade else set())


def test_tables_without_a_known_start_have_a_gap(capture: Ingested) -> None:
    """DataWorks sends the full load, but no message marks it as such or as complete. The stream creates one table."""
    with_gap = {name for name, entry in capture.mirrors.items() if UNSEEN_LOAD.detail in entry.gaps}
    assert with_gap == (set(capture.mirrors) - {"shop.vouchers"} if capture.name == "shop-dataworks" else set())


def test_there_are_no_other_mirrors(capture: Ingested) -> None:
    assert set(capture.mirrors) == set(capture.truth)


def test_listed_exceptions_name_tables_of_their_capture(capture: Ingested) -> None:
    assert set(EXCEPTIONS.get(capture.name, {})) <= set(_truth(capture.name))


def test_tables_that_are_right_have_no_gap(capture: Ingested) -> None:
    """Only captures `world-…`: larger ones have tables of every kind, and many of these have a gap by design."""
    if not capture.name.startswith("world-"):
        pytest.skip("not a capture of one fault")
    right = set(capture.mirrors) - set(EXCEPTIONS.get(capture.name, {}))
    assert {name for name in right if capture.mirrors[name].gaps} == FLAGGED.get(capture.name, frozenset())


def test_row_changes_balance(capture: Ingested, spark: SparkSession) -> None:
    balance = lake_balance(Lake(spark, capture.paths))
    assert balance.is_balanced, balance
    assert balance.decoded > 0


def test_each_record_has_one_result(capture: Ingested, spark: SparkSession) -> None:
    batches = spark.read.format("delta").load(capture.paths.table("batches")).collect()
    assert all(row["records"] == sum(row["kinds"].values()) for row in batches)


def test_exceptions_name_captures() -> None:
    assert set(EXCEPTIONS) | set(FLAGGED) <= set(NAMES)
