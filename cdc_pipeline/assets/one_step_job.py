"""Jobs with one op, in one process, exclusive for the pipeline."""

from __future__ import annotations

from typing import TYPE_CHECKING

import dagster as dg

if TYPE_CHECKING:
    from cdc_pipeline.pipeline import Pipeline


def one_step_job(pipeline: Pipeline, name: str, description: str, step: dg.OpDefinition) -> dg.JobDefinition:
    """The job `<pipeline>_<name>`."""

    @dg.job(
        name=f"{pipeline.name}_{name}",
        description=description,
        executor_def=dg.in_process_executor,
        tags=pipeline.run_tags,
    )
    def job() -> None:
        step()

    return job
