"""The check `no_failed_attempts`: whether the newest attempt to ingest a batch succeeded."""

from __future__ import annotations

import dagster as dg

from cdc_pipeline.checks.markdown import code_span

NO_FAILED_ATTEMPTS = "no_failed_attempts"


def attempt_result(key: dg.AssetKey, failure: str | None = None, attempt: int = 0) -> dg.AssetCheckResult:
    """Warns if the newest attempt failed with an error that a later one may not meet. `attempt`: failures in a row."""
    return dg.AssetCheckResult(
        check_name=NO_FAILED_ATTEMPTS,
        asset_key=key,
        passed=failure is None,
        severity=dg.AssetCheckSeverity.WARN,
        description=failure and code_span(failure),
        metadata={"failed_attempts": attempt},
    )
