"""The check `no_failed_attempts`: whether the newest attempt to ingest a batch succeeded."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cdc_pipeline.checks.markdown import check_result

if TYPE_CHECKING:
    import dagster as dg

NO_FAILED_ATTEMPTS = "no_failed_attempts"


def attempt_result(key: dg.AssetKey, failure: str | None = None, attempt: int = 0) -> dg.AssetCheckResult:
    """Warns if the newest attempt failed with an error that a later one may not meet. `attempt`: failures in a row."""
    return check_result(NO_FAILED_ATTEMPTS, key, [] if failure is None else [failure], "", {"failed_attempts": attempt})
