"""Which mirrors a check looks at, where looking at all of them each time would cost more than the cut itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

import dagster as dg

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from cdc_pipeline.mysql.model.table import TableName

WRONG_TABLES = "wrong_tables"
"""The metadata by which a check's next evaluation knows what it has to look at again."""


def wrong_before(instance: dg.DagsterInstance, asset: dg.AssetKey, check: str) -> frozenset[str]:
    """The tables (`database.table`) that the newest evaluation of the check found wrong; none where Dagster has forgotten.

    They are looked at again although nothing changes them: what is wrong must not turn green by itself.
    """
    key = dg.AssetCheckKey(asset, check)
    record = instance.event_log_storage.get_latest_asset_check_execution_by_key([key]).get(key)
    evaluation = None if record is None or record.event is None else record.event.asset_check_evaluation
    found = None if evaluation is None else evaluation.metadata.get(WRONG_TABLES)
    return (
        frozenset(found.value)
        if isinstance(found, dg.JsonMetadataValue) and isinstance(found.value, list)
        else frozenset()
    )


def in_turn(first: Iterable[TableName], others: Sequence[TableName], turn: int, most: int) -> tuple[TableName, ...]:
    """At most `most` names: those of `first`, then as many of the `others` as there is room for, the next ones each turn.

    Of more than `most` in `first` it is these that take turns.
    """
    wanted = sorted(set(first))
    if len(wanted) >= most:
        return _from(wanted, turn, most)
    rest = sorted(set(others) - set(wanted))
    return (*wanted, *_from(rest, turn, min(most - len(wanted), len(rest))))


def _from(names: Sequence[TableName], turn: int, count: int) -> tuple[TableName, ...]:
    start = turn * count % len(names) if names else 0
    return tuple((*names[start:], *names[:start])[:count])


def tables_result(
    check: str, key: dg.AssetKey, wrong: Mapping[str, str], advice: str, looked_at: dg.MetadataValue
) -> dg.AssetCheckResult:
    """The result of a check that looks at tables: fails with those that are `wrong`, what is with each, and what to do."""
    shown = "; ".join(f"{name}: {words}" for name, words in list(wrong.items())[:3])
    return dg.AssetCheckResult(
        check_name=check,
        asset_key=key,
        passed=not wrong,
        description=f"{shown}. {advice}" if wrong else None,
        metadata={**wrong, WRONG_TABLES: dg.MetadataValue.json(sorted(wrong)), "looked_at": looked_at},
    )
