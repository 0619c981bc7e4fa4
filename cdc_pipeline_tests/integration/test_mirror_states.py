"""Each mirror shows its own state in Dagster: its gaps, a held statement, and nothing new if nothing changed."""

from __future__ import annotations

import time
from datetime import datetime
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from pyspark.sql import SparkSession

from cdc_pipeline.assets import mirrors
from cdc_pipeline.component.component import CdcPipeline
from cdc_pipeline.component.run_fields import FreshnessSettings
from cdc_pipeline.component.source_field import CaptureFilesSource
from cdc_pipeline.mysql.model.table import TableName
from cdc_pipeline_tests.support.lakes.stories import change, create, put
from cdc_pipeline_tests.support.lakes.stream import Stream

_READ = {"keys_hold": True, "schema_matches_ddl": True}


class _Pipeline:
    def __init__(self, stream: Stream, instance: dg.DagsterInstance) -> None:
        self.stream, self.instance = stream, instance
        source = CaptureFilesSource(type="capture_files", path=str(stream.folder / "captures"))
        self.component = CdcPipeline(
            name="shop",
            source=source,
            lake=str(stream.folder / "lake"),
            ddl_policy="hold",  # type: ignore[arg-type]
            freshness=FreshnessSettings(fail_minutes=60),
        )

    def run(self, job: str, config: dict[str, Any] | None = None) -> dg.ExecuteInProcessResult:
        checks = dg.AssetSelection.checks(*(dg.AssetCheckKey(_key("u"), name) for name in ("no_gaps", "keys_hold")))
        # after a reload, as `shop_new_tables` requests it
        alone = dg.Definitions(jobs=[dg.define_asset_job("checks_of_u", checks)] if job == "checks_of_u" else [])
        definitions = dg.Definitions.merge(self.component.build_defs(), alone)
        found = definitions.resolve_job_def(job).execute_in_process(
            instance=self.instance,
            run_config={"ops": config or {}, "loggers": {"console": {"config": {"log_level": "ERROR"}}}},
        )
        assert found.success
        return found

    def states(self, job: str = "shop_ingest") -> dict[str, dict[str, bool]]:
        """Mirror → check → whether it passed, of a run."""
        shown: dict[str, dict[str, bool]] = {}
        for check in self.run(job).get_asset_check_evaluations():
            if "mirror" in check.asset_key.path:
                shown.setdefault(check.asset_key.path[-1], {})[check.check_name] = check.passed
        return shown

    def gaps_of(self, table: str) -> dg.AssetCheckEvaluation:
        """The newest result of `no_gaps`."""
        key = dg.AssetCheckKey(_key(table), "no_gaps")
        event = self.instance.event_log_storage.get_asset_check_execution_history(key, 1)[0].event
        assert event is not None
        assert event.asset_check_evaluation is not None
        return event.asset_check_evaluation


def _key(table: str) -> dg.AssetKey:
    return dg.AssetKey(["shop", "mirror", "db", table])


def test_states_of_mirrors(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stream, since = Stream(spark, tmp_path), list[datetime | None]()
    confirmed: list[TableName] = []

    def confirm(_report: object, _limits: object, before: datetime | None) -> list[TableName]:
        since.append(before)
        return confirmed

    monkeypatch.setattr(mirrors, "mirrors_to_confirm", confirm)
    with dg.DagsterInstance.ephemeral() as instance:
        pipeline = _Pipeline(stream, instance)
        tables = [create("t", 1), create("u", 1), create("v", 1)]
        stream.write_slice(9, *tables, put("t", 2, "1", "a"), put("u", 2, "x", "a"), put("v", 2, "1", "a"))
        # before the nodes of the mirrors are loaded
        good = {"no_gaps": True, **_READ}
        assert pipeline.states() == {"t": good, "u": {"no_gaps": False, **_READ}, "v": good}
        gaps = pipeline.gaps_of("u")
        assert gaps.severity == dg.AssetCheckSeverity.WARN
        assert "shop_release_dead_letters for dead letters" in str(gaps.description)

        stream.write_slice(19, put("t", 12, "2", "b"), change("TRUNCATE TABLE t", 13), put("t", 14, "3", "c"))
        assert pipeline.states() == {"t": {"no_gaps": False, **_READ}}
        held = pipeline.gaps_of("t")
        assert held.severity == dg.AssetCheckSeverity.WARN
        assert str(held.description).startswith(
            "`held (ddl_policy) until its statement is approved: see ddl_history at t/0@"
        )
        assert "shop_approve_ddl for held statements" in str(held.description)
        assert not pipeline.gaps_of("u").passed
        # no records, and records of another table only
        assert pipeline.states() == {}
        confirmed.append(TableName("db", "u"))
        stream.write_slice(29, put("v", 22, "2", "b"))
        assert pipeline.states() == {"u": {"no_gaps": False}, "v": good}
        assert since[0] is None
        assert since[-1] is not None
        assert abs(since[-1].timestamp() - time.time()) < 600
        newest = instance.get_latest_materialization_event(_key("u"))
        assert newest is not None
        assert newest.asset_materialization is not None
        assert newest.asset_materialization.metadata["changes"].value == 0

        confirmed.clear()
        pipeline.run("shop_approve_ddl", {"shop_approve_statements": {"config": {"tables": ["db.t"]}}})
        # the job has applied the statement, and made the cut
        assert pipeline.states() == {"t": {"no_gaps": True}}
        # on demand
        assert pipeline.states("checks_of_u") == {"u": {"no_gaps": False, **_READ}}
