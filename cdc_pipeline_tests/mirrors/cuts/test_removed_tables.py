"""A lake from which tables or rows were removed by hand: runs refuse it, and what the error says repairs it."""

from __future__ import annotations

import shutil
from pathlib import Path

import dagster as dg
import pytest
from delta.tables import DeltaTable
from pyspark.sql import SparkSession

from cdc_pipeline.checks.cuts import ONLY_OWN_COMMITS
from cdc_pipeline.checks.results import previously_failed_tables
from cdc_pipeline.definitions import defs
from cdc_pipeline.lake.restored_tables import RestoredTableError, foreign_commit
from cdc_pipeline.mirrors.changes.progress import published_cut
from cdc_pipeline.mirrors.cuts.cut_maker import CutMaker
from cdc_pipeline.mirrors.cuts.totals import lake_balance
from cdc_pipeline.mirrors.operations.rebuild import Rebuilder
from cdc_pipeline.sources.raw_batches import newest_batch, require_decoded_batches
from cdc_pipeline_tests.support.folders import tree
from cdc_pipeline_tests.support.lakes.mirror_checks import CUTS, all_tables
from cdc_pipeline_tests.support.lakes.runs import environment
from cdc_pipeline_tests.support.lakes.stories import change, create, put, update
from cdc_pipeline_tests.support.lakes.story_lake import as_a_new_process
from cdc_pipeline_tests.support.lakes.stream import Stream
from cdc_pipeline_tests.support.messages import watermark_tso


@pytest.fixture(scope="module")
def two_cuts(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Stream:
    """The initial lake of all tests, and `after-one`, a copy of it after its first cut. Copy it."""
    found = Stream(spark, tmp_path_factory.mktemp("two") / "cuts")
    found.write_slice(
        10, create("t", 1), create("u", 1), create("gone", 1), put("t", 2, "1", "a"), put("u", 3, "1", "x")
    )
    found.run()
    shutil.copytree(found.paths.home, found.folder / "after-one")
    found.write_slice(
        20, update("t", 12, ("1", "a"), ("1", "b")), put("t", 13, "2", "c"), change("DROP TABLE gone", 14)
    )
    found.run()
    return found


@pytest.fixture
def stream(two_cuts: Stream, tmp_path: Path) -> Stream:
    return two_cuts.begun_again(tmp_path / "cuts")


def _rebuild(stream: Stream, tables: list[str]) -> int | None:
    return Rebuilder(CutMaker(stream.lake, "rebuild", "UTC", 2, lambda line: None)).rebuild(tables).cut_id


def _assert_right(stream: Stream) -> None:
    """Nothing is lost, and the pipeline continues."""
    stream.run()
    stream.write_slice(40, put("u", 32, "2", "y"))
    stream.run()
    assert stream.rows("t") == [(1, "b"), (2, "c"), (3, "d")]
    assert stream.rows("u") == [(1, "x"), (2, "y")]
    published = published_cut(stream.lake)
    assert (published.resolved_tso, {name.table for name in published.names}) == (watermark_tso(40), {"t", "u"})
    assert not any(row["gaps"] for row in published.mirrors)
    assert lake_balance(stream.lake).is_balanced
    assert [foreign_commit(stream.lake, f"{stream.paths.home}/{table}") for table in ("change_log", "mirror/db/t")] == [
        None,
        None,
    ]


def _damage(stream: Stream, *deeds: str) -> None:
    """Deeds: `rm PATH`; `old PATH`, which replaces it by its copy of after the first cut; `TABLE WHERE`, which deletes
    rows."""
    home = Path(stream.paths.home)
    for deed in deeds:
        kind, _, rest = deed.partition(" ")
        if kind in ("rm", "old"):
            shutil.rmtree(home / rest)
            if kind == "old":
                shutil.copytree(stream.folder / "after-one" / rest, home / rest)
        else:
            DeltaTable.forPath(stream.spark, str(home / kind)).delete(rest)
    as_a_new_process(stream.spark)


_CASES = {
    "a mirror": (["rm mirror/db/t"], r"lacks mirror/db\.t \(version \d+\): .*shop_rebuild with its name", ["db.t"]),
    "a mirror that new records do not change": (["rm mirror/db/u"], r"lacks mirror/db\.u \(version", ["db.u"]),
    "a mirror, replaced by an older copy": (["old mirror/db/t"], r"lacks mirror/db\.t \(version", ["db.t"]),
    "all mirrors": (["rm mirror"], r"lacks mirror/db\.t \(version \d+\), mirror/db\.u \(version", []),
    "all cuts": (["consistent_cuts true"], r"lacks cut 2 in consistent_cuts: .*shop_rebuild without `tables`", []),
    "the newest cut": (["consistent_cuts cut_id = 2"], "lacks cut 2 in", []),
    "the table of cuts": (["rm consistent_cuts"], "lacks cut 1 in", []),
    "cuts and plans": (["rm consistent_cuts", "rm cut_plans"], "lacks cut 2 in", []),
    "cuts and a mirror": (["consistent_cuts true", "rm mirror/db/t"], "lacks cut 2 in", []),
}


@pytest.mark.parametrize("case", _CASES)
def test_what_a_rebuild_repairs(stream: Stream, case: str) -> None:
    deeds, message, tables = _CASES[case]
    _damage(stream, *deeds)
    stream.write_slice(30, put("t", 22, "3", "d"))
    kept = [Path(stream.paths.home, name) for name in ("mirror", "consistent_cuts", "cut_plans")]
    before = [tree(folder) for folder in kept if folder.exists()]
    for _ in range(2):
        with pytest.raises(RestoredTableError, match=message):
            stream.run()
    assert [tree(folder) for folder in kept if folder.exists()] == before
    if not tables:
        with pytest.raises(RestoredTableError, match=message):
            _rebuild(stream, ["db.t"]) if "cut" in message else stream.run()
    assert _rebuild(stream, tables) is not None
    _assert_right(stream)


@pytest.mark.parametrize(
    "deeds", [["rm raw_topic_snapshot"], ["old raw_topic_snapshot"], ["rm raw_topic_snapshot", "rm batches"]]
)
def test_raw_records(stream: Stream, deeds: list[str]) -> None:
    require_decoded_batches(stream.lake)
    _damage(stream, *deeds)
    assert newest_batch(stream.lake) < 2
    with pytest.raises(RestoredTableError, match=r"^raw_topic_snapshot lacks batch 2, which is decoded: ") as caught:
        require_decoded_batches(stream.lake)
    # what the error says
    home = Path(stream.paths.home)
    assert f"move all folders but raw_topic_snapshot out of {home} and start a run" in str(caught.value)
    for folder in home.iterdir():
        if folder.name != "raw_topic_snapshot":
            shutil.move(folder, stream.folder / "away" / folder.name)
    as_a_new_process(stream.spark)
    require_decoded_batches(stream.lake)
    stream.write_slice(30, put("t", 22, "3", "d"))
    _assert_right(stream)


def test_the_table_of_batches_is_decoded_again(stream: Stream) -> None:
    _damage(stream, "rm batches")
    require_decoded_batches(stream.lake)
    stream.write_slice(30, put("t", 22, "3", "d"))
    _assert_right(stream)


def test_rows_changed_by_hand_are_found_and_rebuilt(stream: Stream) -> None:
    """By the jobs, as Dagster runs them. The check fails until a rebuild has replaced the table."""
    lake = stream.lake
    stream.write_slice(30, put("t", 22, "3", "d"))
    stream.run()
    _damage(stream, "mirror/db/t id = 2", "change_log false")
    tables = {}
    with environment(stream.folder / "captures", stream.folder / "lake"), dg.DagsterInstance.ephemeral() as instance:

        def run(name: str, **config: object) -> list[str]:
            quiet = {"loggers": {"console": {"config": {"log_level": "ERROR"}}}, **config}
            assert (
                defs().resolve_job_def(f"shop_{name}").execute_in_process(instance=instance, run_config=quiet).success
            )
            return sorted(previously_failed_tables(instance, CUTS, ONLY_OWN_COMMITS))

        tables = {name: run(name) for name in ("ingest", "maintain")}
        assert tables == {"ingest": [], "maintain": ["mirror/db/t"]}
        assert run("ingest") == ["mirror/db/t"]
        run("rebuild", ops={"shop_rebuild_all": {"config": {"tables": ["db.t"]}}})
        assert (run("ingest"), run("maintain")) == ([], [])
    assert [table for table in all_tables(lake) if foreign_commit(lake, f"{lake.paths.home}/{table}")] == []
    _assert_right(stream)
