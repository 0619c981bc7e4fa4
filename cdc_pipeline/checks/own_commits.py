"""The check `only_own_commits`: no other writer has changed rows of the lake's tables."""

from __future__ import annotations

from typing import TYPE_CHECKING

import dagster as dg

from cdc_pipeline.checks.rotation import tables_result
from cdc_pipeline.lake.restored_tables import foreign_commit

if TYPE_CHECKING:
    from collections.abc import Iterable

    from cdc_pipeline.lake.lake import Lake

ONLY_OWN_COMMITS = "only_own_commits"


def own_commits_result(lake: Lake, tables: Iterable[str], key: dg.AssetKey) -> dg.AssetCheckResult:
    """Fails if a table has rows of another writer. `tables`: paths below the pipeline's folder."""
    found = {table: foreign_commit(lake, f"{lake.paths.home}/{table}") for table in tables}
    # a rebuild reads the raw records, so it does not repair them
    advice = (
        f"For mirrors run {lake.paths.pipeline}_rebuild with their names in `tables`, for other tables first read "
        "`cdc-pipeline docs operations removed`"
    )
    errors = {table: commit for table, commit in found.items() if commit}
    return tables_result(ONLY_OWN_COMMITS, key, errors, advice, dg.MetadataValue.int(len(found)))
