"""Jobs with one op, in one process, exclusive for the pipeline."""

from __future__ import annotations

from typing import TYPE_CHECKING

import dagster as dg

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cdc_pipeline.pipeline import Pipeline


def one_step_job(
    pipeline: Pipeline, name: str, description: str, step: dg.OpDefinition, tags: Mapping[str, str] | None = None
) -> dg.JobDefinition:
    """The job `<pipeline>_<name>`. `tags`: tags of its runs, by default those of every run of the pipeline."""

    @dg.job(
        name=f"{pipeline.name}_{name}",
        description=description,
        executor_def=dg.in_process_executor,
        tags=pipeline.run_tags if tags is None else tags,
    )
    def job() -> None:
        step()

    return job
