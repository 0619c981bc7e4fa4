"""Runs: retries of errors, the time limit, and one run per pipeline at a time. Without Spark."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import dagster as dg
import pytest
import yaml

from cdc_pipeline.assets import failures
from cdc_pipeline.assets.failures import translate_errors
from cdc_pipeline.component.component import CdcPipeline
from cdc_pipeline.component.source_field import CaptureFilesSource
from cdc_pipeline.errors import TerminalError, TransientError

_INSTANCE = yaml.safe_load((Path(__file__).parents[1] / "dagster.yaml").read_text(encoding="utf-8"))


@pytest.mark.parametrize(
    ("errors", "tries", "success"),
    [
        ([TransientError("the broker is away", topic="t")], 2, True),
        ([TransientError("away")] * 2, 3, True),
        ([TransientError("away")] * 3, 3, False),
        ([TransientError("away"), TerminalError("no such topic")], 2, False),
        ([TerminalError("no such topic")], 1, False),
        ([RuntimeError("a fault of ours")], 1, False),
    ],
)
def test_retries(monkeypatch: pytest.MonkeyPatch, errors: list[Exception], tries: int, success: bool) -> None:
    monkeypatch.setattr(failures, "_PAUSE_SECONDS", 0.0)
    made: list[int] = []

    @dg.op
    def step() -> None:
        made.append(len(made))
        with translate_errors():
            if len(made) <= len(errors):
                raise errors[len(made) - 1]

    @dg.job(executor_def=dg.in_process_executor)
    def job() -> None:
        step()

    with dg.DagsterInstance.ephemeral() as instance:
        logger = {"loggers": {"console": {"config": {"log_level": "CRITICAL"}}}}
        result = job.execute_in_process(instance=instance, raise_on_error=False, run_config=logger)
    assert (len(made), result.success) == (tries, success)


def _tags(tmp_path: Path, max_runtime_seconds: int | None) -> dict[str, Mapping[str, str]]:
    source = CaptureFilesSource(type="capture_files", path="data/captures/shop")
    component = CdcPipeline(
        name="p", source=source, lake=str(tmp_path / "lake"), max_runtime_seconds=max_runtime_seconds
    )
    jobs = component.build_defs().resolve_all_job_defs()
    return {job.name: job.tags for job in jobs if not job.name.startswith("__")}


def test_tags_of_every_job(tmp_path: Path) -> None:
    """`cdc/pipeline` limits concurrency to one run; the time limit comes from the YAML file."""
    found = _tags(tmp_path, 900)
    assert set(found) == {
        f"p_{name}"
        for name in (
            *("ingest", "follow", "rebuild", "release_dead_letters", "ddl_dry_run", "approve_ddl"),
            *("maintain", "verify"),
        )
    }
    for name, tags in found.items():
        # a run that follows ends its last batch after its 30 minutes
        limit = "18900" if name == "p_follow" else "900"
        assert (tags["cdc/pipeline"], tags["dagster/max_runtime"]) == ("p", limit)
    assert not any("dagster/max_runtime" in tags for tags in _tags(tmp_path, None).values())


def test_instance_limits_concurrency_and_ends_hanging_runs() -> None:
    assert {"key": "cdc/pipeline", "value": {"applyLimitPerUniqueValue": True}, "limit": 1} in _INSTANCE["concurrency"][
        "runs"
    ]["tag_concurrency_limits"]
    assert _INSTANCE["run_monitoring"]["enabled"]
    assert _INSTANCE["run_monitoring"]["max_runtime_seconds"] > 0
    # only a run whose process died is restarted, not one with a failed check or a bad record
    assert _INSTANCE["run_retries"] == {"enabled": True, "max_retries": 2, "retry_on_asset_or_op_failure": False}
