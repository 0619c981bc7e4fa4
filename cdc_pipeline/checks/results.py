"""The results of checks: Markdown that quotes upstream, and the tables that a check reads in this run.

Dagster's UI renders descriptions of assets, of columns in a column schema and of check results as GitHub's Markdown.
Metadata, other than `MetadataValue.md`, names, tags and descriptions of failures are plain text.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import dagster as dg

from cdc_pipeline.mysql.model.table import TableName


def code_span(text: object) -> str:
    """The text as one code span, in one line: no link, image or HTML of it is rendered.

    Escaped text would not do: GitHub's Markdown also links the addresses in it.
    """
    content = " ".join(str(text).split())
    if content.startswith("`") or content.endswith("`") or not content:
        content = f" {content} "
    fence = "`" * (max(map(len, re.findall("`+", content)), default=0) + 1)
    return f"{fence}{content}{fence}"


def check_result(
    name: str,
    key: dg.AssetKey,
    problems: Iterable[str],
    advice: str,
    metadata: Mapping[str, Any],
    *,
    is_error: bool = False,
) -> dg.AssetCheckResult:
    """The result of a check, which passes without problems. `is_error`: it fails, if not it warns.

    `problems` may quote upstream, `advice` must not.
    """
    found = list(problems)
    description = f"{code_span('; '.join(found))}. {advice}".removesuffix(". ")
    return dg.AssetCheckResult(
        check_name=name,
        asset_key=key,
        passed=not found,
        severity=dg.AssetCheckSeverity.ERROR if is_error else dg.AssetCheckSeverity.WARN,
        description=description if found else None,
        metadata=metadata,
    )


_NEWEST_RESULTS = 5
WRONG_TABLES = "wrong_tables"
"""Metadata entry with the failed tables, which the next evaluation reads."""


def newest_evaluation(instance: dg.DagsterInstance, key: dg.AssetCheckKey) -> dg.EventLogEntry | None:
    """The newest result of a check; None without one.

    A row without a result is of a run that waits, runs or failed. A result replaces its row, so that older rows may have
    newer results.
    """
    rows = instance.event_log_storage.get_asset_check_execution_history(key, _NEWEST_RESULTS)
    events = [row.event for row in rows if row.event is not None and row.event.asset_check_evaluation is not None]
    return max(events, key=lambda event: event.timestamp, default=None)


def previously_failed_tables(instance: dg.DagsterInstance, asset: dg.AssetKey, check: str) -> frozenset[str]:
    """The tables (`database.table`) that failed the newest evaluation of the check; empty if Dagster has none stored.

    The next evaluation reads them again even if no cut changes them, so that a failure does not disappear by itself.
    """
    event = newest_evaluation(instance, dg.AssetCheckKey(asset, check))
    evaluation = None if event is None else event.asset_check_evaluation
    tables = None if evaluation is None else evaluation.metadata.get(WRONG_TABLES)
    return (
        frozenset(tables.value)
        if isinstance(tables, dg.JsonMetadataValue) and isinstance(tables.value, list)
        else frozenset()
    )


def next_in_rotation(
    first: Iterable[TableName], others: Sequence[TableName], turn: int, most: int
) -> tuple[TableName, ...]:
    """At most `most` names: all of `first`, filled up with `others`, which rotate with `turn`.

    To read all tables would cost more than the cut. If `first` has more than `most` names, these rotate.
    """
    required = sorted(set(first))
    if len(required) >= most:
        return _slice(required, turn, most)
    rest = sorted(set(others) - set(required))
    return (*required, *_slice(rest, turn, min(most - len(required), len(rest))))


def _slice(names: Sequence[TableName], turn: int, count: int) -> tuple[TableName, ...]:
    start = turn * count % len(names) if names else 0
    return tuple((*names[start:], *names[:start])[:count])


def tables_result(
    check: str, key: dg.AssetKey, errors: Mapping[str, str], advice: str, checked: dg.MetadataValue
) -> dg.AssetCheckResult:
    """The result of a check over tables. `errors`: failed table → error; `checked`: summary of what was read."""
    examples = [f"{name}: {error}" for name, error in [*errors.items()][:3]]
    metadata = {**errors, WRONG_TABLES: dg.MetadataValue.json(sorted(errors)), "checked": checked}
    return check_result(check, key, examples, advice, metadata, is_error=True)
