"""The results of checks: Markdown that quotes upstream, and the tables that a check reads in this run.

Dagster's UI renders descriptions of assets, of columns in a column schema and of check results as GitHub's Markdown.
Metadata, other than `MetadataValue.md`, names, tags and descriptions of failures are plain text.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
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


@dataclass(frozen=True)
class CheckedAssets:
    """Keys of the assets with checks of mirrors."""

    cuts: dg.AssetKey
    """`consistent_cuts`, after the name of the pipeline."""
    mirror: Callable[[TableName], dg.AssetKey]

    @property
    def pipeline(self) -> str:
        return self.cuts.path[-2]


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


def check_key(result: dg.AssetCheckResult) -> dg.AssetCheckKey:
    assert result.asset_key is not None
    assert result.check_name is not None
    return dg.AssetCheckKey(result.asset_key, result.check_name)


FEW_MIRRORS = 20


def without_repeated(
    instance: dg.DagsterInstance, results: Sequence[dg.AssetCheckResult], cuts: dg.AssetKey
) -> list[dg.AssetCheckResult]:
    """The results of a few mirrors; of many without those that passed and whose newest result is that they passed.

    Dagster stores each with up to three synchronous writes. It shows a check without one as not evaluated for the newest
    materialization.
    """
    passed = [check_key(one) for one in results if one.passed and one.asset_key != cuts]
    if len({key.asset_key for key in passed}) <= FEW_MIRRORS:
        return [*results]
    newest = instance.event_log_storage.get_latest_asset_check_execution_by_key(passed)
    repeated = {key for key, record in newest.items() if record.status.value == "SUCCEEDED"}.intersection(passed)
    return [one for one in results if check_key(one) not in repeated]


def previous_metadata(instance: dg.DagsterInstance, asset: dg.AssetKey, check: str) -> Mapping[str, Any] | None:
    """The values in the metadata of the newest result of a check; None without one."""
    event = newest_evaluation(instance, dg.AssetCheckKey(asset, check))
    evaluation = None if event is None else event.asset_check_evaluation
    return None if evaluation is None else {name: entry.value for name, entry in evaluation.metadata.items()}


def previously_failed_tables(instance: dg.DagsterInstance, asset: dg.AssetKey, check: str) -> frozenset[str]:
    """The tables (`database.table`) that failed the newest evaluation of the check; empty if Dagster has none stored.

    The next evaluation reads them again even if no cut changes them, so that a failure does not disappear by itself.
    """
    tables = (previous_metadata(instance, asset, check) or {}).get(WRONG_TABLES)
    return frozenset(tables) if isinstance(tables, list) else frozenset()


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


def mirror_results(
    check: str, assets: CheckedAssets, checked: Mapping[TableName, str], errors: Mapping[str, str], advice: str
) -> list[dg.AssetCheckResult]:
    """The results of the same check for single mirrors. `checked`: each of them → what was read of it."""
    return [
        check_result(
            check,
            assets.mirror(name),
            [errors[str(name)]] if str(name) in errors else [],
            advice,
            {"checked": read},
            is_error=True,
        )
        for name, read in checked.items()
    ]
