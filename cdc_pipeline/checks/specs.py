"""The checks as Dagster shows them: what each compares. A result that does not pass says what to do."""

from __future__ import annotations

import dagster as dg

from cdc_pipeline.checks.contract import CONTRACT, FIELD_RULES
from cdc_pipeline.checks.cuts import (
    BEFORE_IMAGES,
    DDL_APPLIED,
    NO_BREACH,
    NO_FAILED_ATTEMPTS,
    NO_GAPS,
    ONLY_OWN_COMMITS,
)
from cdc_pipeline.checks.mirrors import KEYS_HOLD, SCHEMA_MATCHES_DDL
from cdc_pipeline.checks.records import BALANCE, NO_DEAD_LETTERS
from cdc_pipeline.checks.streams import FRESH, NO_LOST_OFFSETS, NO_OPEN_TRANSACTIONS, WATERMARKS_ADVANCE

_DESCRIPTIONS = {
    BALANCE: "Nothing is lost and nothing is counted twice. Of change_log: the records of a batch are equal to what they "
    "became. Of consistent_cuts: each row change is in one cut, late, filtered or pending.",
    BEFORE_IMAGES: "Each UPDATE and DELETE found the row that its before image shows, and each INSERT found none. Says how "
    "many changes of each table proved it.",
    CONTRACT: "The new rows keep the rules that decoding enforces. If not, it is a bug.",
    DDL_APPLIED: "Every DDL statement is applied, or has no effect on the mirrors. None waits for approval.",
    NO_GAPS: "Each mirror is equal to upstream. Lists why one may differ, and before which statement it is held.",
    NO_DEAD_LETTERS: "No record breaks a rule. Lists the rules with the number of their dead letters.",
    NO_FAILED_ATTEMPTS: "The newest attempt of a run that follows its source succeeded. The run itself tries again.",
    FIELD_RULES: "No message breaks a rule that only warns. Such messages are decoded; their sender may be unknown.",
    FRESH: "The mirrors are not further behind the clock than freshness allows.",
    KEYS_HOLD: "No two rows of a mirror have the same key, and no part of a key is NULL.",
    NO_LOST_OFFSETS: "No records expired before they were read.",
    NO_BREACH: "No change arrived after a watermark that had closed its time.",
    NO_OPEN_TRANSACTIONS: "No producer's transaction holds back a partition for longer than 15 minutes.",
    ONLY_OWN_COMMITS: "No other writer has changed rows of the lake's tables. The maintenance job reads their logs.",
    SCHEMA_MATCHES_DDL: "The columns of each mirror are those of its newest DDL.",
    WATERMARKS_ADVANCE: "Each partition has a watermark that advances and is at most ten minutes behind.",
}
CHECKS = tuple(_DESCRIPTIONS)
"""Names of all checks."""
_OF_MIRRORS = (NO_GAPS, KEYS_HOLD, SCHEMA_MATCHES_DDL, BEFORE_IMAGES)
BLOCKING = (BALANCE, CONTRACT)
"""If one of them does not pass, the steps that follow are not run."""


def check_spec(name: str, asset: dg.AssetKey) -> dg.AssetCheckSpec:
    return dg.AssetCheckSpec(name, asset=asset, description=_DESCRIPTIONS[name], blocking=name in BLOCKING)


def mirror_check_specs(mirror: dg.AssetKey) -> list[dg.AssetCheckSpec]:
    return [check_spec(name, mirror) for name in _OF_MIRRORS]


def cut_check_specs(cuts: dg.AssetKey, *, has_limits: bool) -> list[dg.AssetCheckSpec]:
    """The checks of `consistent_cuts`: those of a mirror, for all mirrors, and others. `has_limits`: of the lag."""
    others = (NO_FAILED_ATTEMPTS, DDL_APPLIED, BALANCE, NO_BREACH, ONLY_OWN_COMMITS, *([FRESH] if has_limits else []))
    return [check_spec(name, cuts) for name in (*_OF_MIRRORS, *others)]
