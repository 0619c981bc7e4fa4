"""The definitions that Dagster loads: the pipelines under `defs/` and their shared resources."""

from pathlib import Path

import dagster as dg


@dg.definitions
def defs() -> dg.Definitions:
    shared = dg.Definitions(executor=dg.in_process_executor)  # one JVM per run, also for "Materialize" in the UI
    return dg.Definitions.merge(dg.load_from_defs_folder(path_within_project=Path(__file__).parent), shared)
