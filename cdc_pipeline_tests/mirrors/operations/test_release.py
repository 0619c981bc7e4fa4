"""Released dead letters are applied at their own position in the stream, whatever follows them."""

from __future__ import annotations

import gzip
import time
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

import cdc_pipeline
from cdc_pipeline.component.component import CdcPipeline
from cdc_pipeline.component.source_field import CaptureFilesSource
from cdc_pipeline.errors import LakeError, SourceError
from cdc_pipeline.gaps import gap_texts
from cdc_pipeline.lake.delta import table_state
from cdc_pipeline.lake.lake import Lake
from cdc_pipeline.lake.paths import LakePaths
from cdc_pipeline.mirrors.cuts.cut_maker import CutMaker
from cdc_pipeline.mirrors.cuts.totals import lake_balance
from cdc_pipeline.mirrors.model.state import MirrorState
from cdc_pipeline.mirrors.operations.letter_choice import DeadLetterChoice
from cdc_pipeline.mirrors.operations.rebuild import Rebuilder
from cdc_pipeline.mirrors.operations.release import DeadLetters, Releaser
from cdc_pipeline.mysql.model.table import TableName
from cdc_pipeline_tests.support.lakes.pipelines import ingest
from cdc_pipeline_tests.support.lakes.runs import delta_versions, failure_texts
from cdc_pipeline_tests.support.lakes.seen import seen
from cdc_pipeline_tests.support.lakes.stories import KEYLESS, change, create, delete, put, update, wide
from cdc_pipeline_tests.support.messages import EPOCH_MS, Topic, record_line, watermark

BROKEN = {
    # name → the record as it should have been, all of partition 1
    "newer row": update("t", 4, ("1", "a"), ("1", "b")),
    "newer delete": put("t", 4, "5", "gone since"),
    "no newer": put("t", 5, "8", "late"),
    "before truncate": put("bag", 4, "1", "x"),
    "after truncate": put("bag", 8, "3", "z"),
    "new column": (change("ALTER TABLE t ADD COLUMN n INT DEFAULT 7", 9)[0], 1),
    "its row": wide("INSERT", "t", 10, {"id": "9", "v": "wide", "n": "1"}),
}
STREAM: list[tuple[str, int] | str] = [
    *(create("t", 1), create("bag", 1, KEYLESS), create("other", 1), put("other", 2, "1", "o"), put("t", 2, "1", "a")),
    *("newer row", "newer delete", "no newer", "before truncate", update("t", 6, ("1", "b"), ("1", "c"))),
    *(delete("t", 7, "5", "gone since"), change("TRUNCATE TABLE bag", 7), put("bag", 8, "2", "y"), "after truncate"),
    *(put("t", 8, "x1", "no int"), put("t", 8, "x2", "no int either"), "new column", put("other", 9, "2", "p")),
]
TRUTH = {
    "t": [(1, "c", 7), (2, "mended", 7), (8, "late", 7)],
    "bag": [(2, "y"), (3, "z")],
    "other": [(1, "o"), (2, "p")],
}


class ReleaseLake:
    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self.spark, self.folder, self.topic = spark, folder, Topic()
        self.paths = LakePaths(str(folder / "lake"), "shop")
        self.places: dict[str, str] = {}

    def send(self, until: int, messages: list[tuple[str, int] | str]) -> None:
        for message in messages:
            payload, partition = BROKEN[message] if isinstance(message, str) else message
            offset = self.topic.offsets.get(partition, 0)
            if isinstance(message, str):
                self.places[message] = f"t/{partition}@{offset}"
                # a dead letter that names its table gives the table a gap; one that is not JSON cannot
                payload = payload.replace('"es": ', '"es": -') if message == "no newer" else payload[:-9]
            elif '"x1"' in payload or '"x2"' in payload:
                self.places["x1" if '"x1"' in payload else "x2"] = f"t/{partition}@{offset}"
            self.topic.send(payload, partition)
        for partition in (0, 1):
            self.topic.send(watermark(until), partition)
        self.topic.write(self.folder / "captures", f"{until:04d}.jsonl")
        ingest(self.spark, self.paths, self.folder / "captures")

    def rebuilder(self, run_id: str) -> Rebuilder:
        return Rebuilder(CutMaker(Lake(self.spark, self.paths), run_id, "UTC", 2, lambda _: None))

    def table(self, name: str) -> Any:
        return self.spark.read.format("delta").load(self.paths.table(name))

    def letters(self) -> set[str]:
        place = F.format_string("%s/%d@%d", "topic", "partition", "offset").alias("place")
        return {row["place"] for row in self.table("dead_letters").select(place).collect()}

    def gaps(self, table: str) -> tuple[str, ...]:
        state = table_state(self.spark, self.paths.mirror(TableName("db", table)))
        assert state is not None
        return gap_texts(MirrorState.from_properties(state.properties).gaps)


@pytest.fixture(scope="module")
def lake(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> ReleaseLake:
    lake = ReleaseLake(spark, tmp_path_factory.mktemp("release"))
    lake.send(12, STREAM)
    return lake


def test_a_release_without_a_valid_record_changes_nothing(lake: ReleaseLake, spark: SparkSession) -> None:
    assert lake.letters() == set(lake.places.values())
    assert "the first at " + lake.places["no newer"] in lake.gaps("t")[0]
    before = delta_versions(spark, Path(lake.paths.home))
    releaser = Releaser(lake.rebuilder("refused"))
    # the records still break their rules, and so does the replacement
    report = releaser.release(DeadLetterChoice(positions=("t/1@0-8",), replacements={lake.places["newer row"]: "{}"}))
    assert {str(letter.position) for letter in report.dead.shown} == {
        lake.places[name] for name in ("newer row", "newer delete", "no newer", "before truncate")
    }
    assert (report.released, report.dead.count, report.rebuild) == (DeadLetters(0, ()), 4, None)
    assert all(letter.reason for letter in report.dead.shown)

    assert delta_versions(spark, Path(lake.paths.home)) == before


def test_wrong_choices_are_reported(lake: ReleaseLake, spark: SparkSession, tmp_path: Path) -> None:
    letters = spark.createDataFrame(lake.table("dead_letters").collect(), lake.table("dead_letters").schema)
    twice = tmp_path / "twice.jsonl"
    twice.write_text(record_line("{}", "t", 1, 2) + "\n", encoding="utf-8")
    torn = tmp_path / "torn.jsonl"
    torn.write_text('{"topic": "t"\n', encoding="utf-8")
    empty = tmp_path / "empty.jsonl"
    empty.write_text(record_line(None, "t", 1, 2) + "\n", encoding="utf-8")
    for choice, kind, said in (
        (
            DeadLetterChoice(positions=("t/0@0-1", "t/1@0-99")),
            LakeError,
            "no dead letter at t/0@0: nothing was released",
        ),
        (DeadLetterChoice(replacements={"u/1@2": "{}"}), LakeError, "no dead letter at u/1@2"),
        (
            DeadLetterChoice(rules=("json*",), tables=("elsewhere.*",)),
            LakeError,
            "no dead letter is chosen; there are: ",
        ),
        (DeadLetterChoice(replacement_file=str(tmp_path / "none")), SourceError, "there is no file"),
        (DeadLetterChoice(replacement_file=str(torn)), SourceError, "not a complete Kafka record"),
        (DeadLetterChoice(replacement_file=str(empty)), SourceError, "has no payload at t/1@2"),
        (
            DeadLetterChoice(replacements={"t/1@2": "{}"}, replacement_file=str(twice)),
            SourceError,
            "t/1@2 has more than one replacement",
        ),
    ):
        with pytest.raises(kind, match=said):
            choice.choose(letters, choice.replacement_rows(spark))


def test_released_records_are_applied_at_their_position(lake: ReleaseLake, spark: SparkSession) -> None:
    replacements = {lake.places[name]: payload for name, (payload, _) in BROKEN.items() if name != "its row"}
    mended, still = put("t", 8, "2", "mended")[0], put("t", 8, "x3", "no int at all")[0]
    replacements |= {lake.places["x1"]: mended, lake.places["x2"]: still}
    report = Releaser(lake.rebuilder("released"), "seen to").release(DeadLetterChoice(replacements=replacements))
    assert {str(letter.position) for letter in report.released.shown} == set(lake.places.values()) - {lake.places["x2"]}
    (dead,) = report.dead.shown
    assert (str(dead.position), dead.rule, dead.table) == (lake.places["x2"], "value_has_type", "db.t")
    assert dead.reason == "column id: expected int, found x3"
    assert report.rebuild is not None
    assert report.rebuild.cut_id == 2

    assert seen(cdc_pipeline.read_cut(spark, lake.paths.root, "shop")) == TRUTH
    # one dead letter remains
    assert lake.letters() == {lake.places["x2"]}
    (gap,) = lake.gaps("t")
    assert (
        gap == f"1 row(s) with values that their types cannot hold: see dead_letters, the first at {lake.places['x2']}"
    )
    assert lake.gaps("bag") == ()
    assert lake_balance(Lake(spark, lake.paths)).is_balanced
    log = (
        lake.table("change_log").where("`table` = 't' AND after['id'] = '8'").select("partition", "offset", "batch_id")
    )
    assert [f"t/{row[0]}@{row[1]} {row[2]}" for row in log.collect()] == [f"{lake.places['no newer']} 1"]

    kept = lake.table("dead_letter_releases").where("run_id = 'released' AND note = 'seen to'").collect()
    assert len(kept) == report.released.count
    by_place = {f"t/{row['partition']}@{row['offset']}": row for row in kept}
    assert bytes(by_place[lake.places["x1"]]["replacement"]).decode() == mended
    assert b'"x1"' in bytes(by_place[lake.places["x1"]]["value"])
    assert by_place[lake.places["x1"]]["rule"] == "value_has_type"


def test_rebuilds_and_later_runs_keep_the_releases(lake: ReleaseLake) -> None:
    # a new dead letter, and the same run again, as after an interruption: it releases nothing more, and all is equal
    lake.send(20, ["its row", put("t", 13, "10", "ten")])
    assert lake.letters() == {lake.places["x2"], lake.places["its row"]}
    stopped = Releaser(lake.rebuilder("released")).release(DeadLetterChoice(rules=("*",)))
    assert stopped.released.count == 7
    assert stopped.rebuild is not None
    assert [table.table for table in stopped.rebuild.tables if not table.equal] == []
    # as another run that repeats an interrupted one
    with pytest.raises(
        LakeError, match=r"no dead letter at t/.* is that of run released: if it failed, run shop_rebuild"
    ):
        Releaser(lake.rebuilder("again")).release(DeadLetterChoice(positions=(lake.places["x1"],)))


def test_the_job(lake: ReleaseLake, spark: SparkSession, tmp_path: Path) -> None:
    """The last test of the module."""
    source = CaptureFilesSource(type="capture_files", path=str(lake.folder / "captures"))
    component = CdcPipeline(name="shop", source=source, lake=lake.paths.root)

    def run(job: str, config: dict[str, Any] | None = None) -> dg.ExecuteInProcessResult:
        definitions = component.build_defs()
        ops = {} if config is None else {"shop_release_letters": {"config": config}}
        with dg.DagsterInstance.ephemeral() as instance:
            return definitions.resolve_job_def(job).execute_in_process(
                instance=instance,
                raise_on_error=False,
                run_config={"ops": ops, "loggers": {"console": {"config": {"log_level": "CRITICAL"}}}},
            )

    for config, said in (
        ({}, "nothing is chosen"),
        ({"positions": ["shop"]}, "'shop' is no position"),
        ({"positions": [lake.places["its row"]]}, "none of the selected dead letters was released"),
    ):
        (text,) = failure_texts(run("shop_release_dead_letters", config))
        assert said in text

    place = lake.places["its row"]
    partition, offset = map(int, place.removeprefix("t/").split("@"))
    file = tmp_path / "mended.jsonl.gz"
    with gzip.open(file, "wt", encoding="utf-8") as stream:
        stream.write(record_line(BROKEN["its row"][0], "t", partition, offset) + "\n")
    result = run("shop_release_dead_letters", {"replacement_file": str(file), "note": "ticket 7"})
    assert result.success
    (output,) = [event for event in result.all_events if event.is_successful_output]
    metadata = output.step_output_data.metadata  # type: ignore[union-attr]
    assert (metadata["released"].value, metadata["not_released"].value) == (1, 0)
    (letter,) = metadata["released_dead_letters"].value.records  # type: ignore[union-attr]
    assert letter.data["position"] == place
    differ = [row.data["table"] for row in metadata["content_hashes"].value.records if row.data["equal"] == "False"]  # type: ignore[union-attr]
    assert differ == ["change_log", "dead_letters", "batches", "mirror/db.t"]
    tables = cdc_pipeline.read_cut(spark, lake.paths.root, "shop")
    assert seen(tables)["t"] == [*TRUTH["t"], (9, "wide", 1), (10, "ten", None)]

    # the pipeline continues, and all checks pass apart from the one for the remaining dead letter
    before = table_state(spark, lake.paths.mirror(TableName("db", "t")))
    lake.topic.send(put("t", 25, "11", "eleven")[0], 1)
    for partition in (0, 1):
        lake.topic.send(watermark(30), partition)
    lake.topic.write(lake.folder / "captures", "0030.jsonl")
    found = run("shop_ingest")
    assert found.success
    shown = {
        event.asset_key.path[-1]: event.metadata for event in found.asset_materializations_for_node("shop_mirrors")
    }
    assert set(shown) == {"t", "consistent_cuts"}
    assert before is not None
    assert shown["t"]["delta_version_before"].value == before.version
    stages = [row.data["stage"] for row in shown["consistent_cuts"]["stages"].value.records]  # type: ignore[union-attr]
    assert stages == ["plan", "net changes", "steps", "counts", "publish"]
    age = shown["consistent_cuts"]["produce_to_mirror_seconds"].value
    produced = (EPOCH_MS + lake.topic.offsets[1] - 2) / 1000  # as `record_line` has it, before the watermark
    assert isinstance(age, float)
    assert -0.05 <= time.time() - produced - age < 60  # it is shown to a tenth of a second
    failed = {check.check_name for check in found.get_asset_check_evaluations() if not check.passed}
    assert failed == {"no_dead_letters", "no_gaps", "field_rules"}
