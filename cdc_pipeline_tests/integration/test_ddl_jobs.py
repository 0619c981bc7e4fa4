"""A held table in the jobs `<pipeline>_ddl_dry_run` and `<pipeline>_approve_ddl`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import dagster as dg
from pyspark.sql import SparkSession

from cdc_pipeline.cli.status import read_status, status_lines
from cdc_pipeline.component.component import CdcPipeline
from cdc_pipeline.component.source_field import CaptureFilesSource
from cdc_pipeline.lake.lake import Lake
from cdc_pipeline.lake.paths import LakePaths
from cdc_pipeline.mysql.model.table import TableName
from cdc_pipeline_tests.support.lakes.stories import change, create, put
from cdc_pipeline_tests.support.messages import Topic, watermark


def test_a_statement_is_shown_and_approved(spark: SparkSession, tmp_path: Path) -> None:
    topic = Topic()
    messages = [create("t", 1), put("t", 2, "1", "a"), change("TRUNCATE TABLE t", 3), put("t", 4, "2", "b")]
    for payload, partition in [*messages, (watermark(9), 0), (watermark(9), 1)]:
        topic.send(payload, partition)
    topic.write(tmp_path / "captures", "1.jsonl")
    source = CaptureFilesSource(type="capture_files", path=str(tmp_path / "captures"))
    component = CdcPipeline(name="p", source=source, lake=str(tmp_path / "lake"), ddl_policy="hold")  # type: ignore[arg-type]

    def run(job: str, config: dict[str, Any] | None = None) -> dg.ExecuteInProcessResult:
        definitions = component.build_defs()
        with dg.DagsterInstance.ephemeral() as instance:
            return definitions.resolve_job_def(job).execute_in_process(
                instance=instance,
                raise_on_error=False,
                run_config={"ops": config or {}, "loggers": {"console": {"config": {"log_level": "ERROR"}}}},
            )

    def rows() -> list[tuple[Any, ...]]:
        mirror = spark.read.format("delta").load(LakePaths(component.lake, "p").mirror(TableName("db", "t")))
        return [tuple(row) for row in mirror.select("id", "v").collect()]

    ingest = run("p_ingest")
    assert ingest.success
    cuts = ingest.asset_materializations_for_node("p_mirrors")[-1].metadata
    (held,) = cuts["held_tables"].value.items()  # type: ignore[union-attr]
    assert (held[0], held[1].rsplit(" ", 1)[0]) == (
        "db.t",
        "held (ddl_policy) until its statement is approved: see ddl_history at",
    )
    statements = [record.data for record in cuts["ddl"].value.records]  # type: ignore[union-attr]
    assert [row["statement"] for row in statements if row["status"] == "held"] == ["TRUNCATE TABLE t"]
    failed = {found.check_name for found in ingest.get_asset_check_evaluations() if not found.passed}
    assert failed == {"ddl_applied", "no_gaps", "field_rules"}
    assert rows() == [(1, "a")]

    shown = run("p_ddl_dry_run")
    assert shown.success
    (output,) = [event for event in shown.all_events if event.is_successful_output]
    (record,) = output.step_output_data.metadata["statements"].value.records  # type: ignore[union-attr]
    assert record.data["statement"] == "TRUNCATE TABLE t"
    assert record.data["status"] == "held"
    assert record.data["effect"] == "TRUNCATE TABLE db.t"
    assert (record.data["lost"], record.data["waiting_row_changes"]) == ("all 1 rows of db.t", 1)

    # what the command shows, without Spark
    status = read_status(Lake(None, LakePaths(component.lake, "p")))  # type: ignore[arg-type]
    assert [entry.gaps for entry in status.mirrors] == [(held[1],)]
    (line,) = [line for line in status_lines(status) if line.startswith(("held", "gap"))]
    assert line.startswith("held: db.t, 1 row changes wait: TRUNCATE TABLE t at ")
    assert "Lost by it: all 1 rows of db.t. `cdc-pipeline approve --tables db.t`" in line

    wrong = run("p_approve_ddl", {"p_approve_statements": {"config": {"tables": ["db.other"]}}})
    assert not wrong.success
    assert run("p_approve_ddl", {"p_approve_statements": {"config": {"tables": ["db.*"]}}}).success
    assert rows() == [(2, "b")]
    last = run("p_approve_ddl", {"p_approve_statements": {"config": {"tables": ["*"]}}})
    assert not last.success
