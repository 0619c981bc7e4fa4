"""What Dagster loads: the pipelines declared under `defs/`, and the resources that they share."""

from pathlib import Path

import dagster as dg


@dg.definitions
def defs() -> dg.Definitions:
    shared = dg.Definitions(executor=dg.in_process_executor)  # also for "Materialize" in the UI: one JVM per run
    return dg.Definitions.merge(dg.load_from_defs_folder(path_within_project=Path(__file__).parent), shared)
