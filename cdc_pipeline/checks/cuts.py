"""The checks of `consistent_cuts` and of mirrors, without `balance`, `keys_hold` and `schema_matches_ddl`."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from typing import Any

import dagster as dg

from cdc_pipeline.checks.results import CheckedAssets, check_result, mirror_results, tables_result
from cdc_pipeline.gaps import Gap
from cdc_pipeline.lake.control_tables import read_rows
from cdc_pipeline.lake.lake import Lake
from cdc_pipeline.lake.recent_answers import RecentAnswers
from cdc_pipeline.lake.restored_tables import foreign_commit
from cdc_pipeline.lake.tables.consistent_cuts import cuts_since_rebuild
from cdc_pipeline.lake.tables.ddl_history import HELD, NOT_APPLIED
from cdc_pipeline.lake.tables.verifications import Rows, last_verified_cut, verified_totals
from cdc_pipeline.mirrors.cuts.cut_report import CutReport, MirrorEntry
from cdc_pipeline.mysql.ddl.statements import without_literals
from cdc_pipeline.mysql.model.table import TableName
from cdc_pipeline.positions import POSITION, Position

DDL_APPLIED, NO_GAPS = "ddl_applied", "no_gaps"
_SHOWN = 20
_COLUMNS = (*POSITION, "commit_ts", "sql", "status", "effect")
_LONGEST = 200


def ddl_applied_result(lake: Lake, recent: RecentAnswers, key: dg.AssetKey) -> dg.AssetCheckResult:
    """Warns if statements are held for approval or cannot be applied. The metadata lists them by position, without
    literals, which may be values of rows."""
    name = lake.paths.pipeline

    def read_unapplied() -> list[dict[str, Any]]:
        found = [
            row
            for status in (NOT_APPLIED, HELD)
            for row in read_rows(lake, "ddl_history", ("status", "=", status), columns=_COLUMNS)
        ]
        return sorted(found, key=lambda row: (row["commit_ts"], row["offset"]))

    unapplied = recent.cached_query("statements not applied", lake.state("ddl_history"), read_unapplied)
    rows, count = unapplied[:_SHOWN], len(unapplied)
    return check_result(
        DDL_APPLIED,
        key,
        [f"{count} DDL statement(s) {NOT_APPLIED} or held, the first at {_position(row)}" for row in rows[:1]],
        f"To apply held statements, run {name}_approve_ddl, or {name}_rebuild if the table is quarantined. For the "
        f"others, run {name}_ddl_dry_run, read `cdc-pipeline docs ddl` and compare their tables with upstream",
        # the effect of a held statement repeats the gap of its table
        {
            _position(row): without_literals(row["sql"])
            + (" (held)" if row["status"] == HELD else f" ({without_literals(row['effect'])})")
            for row in rows
        },
    )


def _position(row: Mapping[str, Any]) -> str:
    return str(Position(row["topic"], row["partition"], row["offset"]))


def no_gaps_result(report: CutReport, key: dg.AssetKey) -> dg.AssetCheckResult:
    """Warns if a mirror may differ from upstream, fails if a table is quarantined. The metadata lists reasons per table."""
    gaps = {str(entry.name): "; ".join(entry.gaps) for entry in report.mirrors if entry.gaps}
    # a quarantined table may have no mirror
    quarantined = {str(table.name): str(table.gap) for table in report.held if table.error}
    gaps |= {name: gap for name, gap in quarantined.items() if name not in gaps}
    examples = [*{**quarantined, **gaps}.items()][:1]
    return check_result(
        NO_GAPS,
        key,
        [f"{len(gaps)} mirror(s) have gaps, for example {name}: {_short(gap)}" for name, gap in examples],
        _advice(key.path[-2], len(quarantined)),
        gaps,
        is_error=bool(quarantined),
    )


def _advice(pipeline: str, quarantined: int) -> str:
    if quarantined:
        return (
            f"{quarantined} table(s) are quarantined: resolve the error, then run {pipeline}_rebuild with their names "
            "in tables (`cdc-pipeline docs operations quarantined`)"
        )
    return (
        f"Run {pipeline}_release_dead_letters for dead letters, {pipeline}_rebuild for late changes, "
        f"{pipeline}_approve_ddl for held statements. For other reasons read `cdc-pipeline docs operations gaps`"
    )


def mirror_gaps_results(
    report: CutReport, previous: Mapping[str, Any] | None, assets: CheckedAssets, touched: Collection[TableName] = ()
) -> list[dg.AssetCheckResult]:
    """`no_gaps` of each mirror in `touched`, and of those whose gaps are not those in `previous`, the metadata of
    `no_gaps_result`. The others keep their result. None: of all mirrors."""
    held = {table.name: table for table in report.held}
    results = []
    for entry in report.mirrors:
        is_known = previous is not None and previous.get(str(entry.name), "") == "; ".join(entry.gaps)
        if is_known and entry.name not in touched:
            continue
        table = held.get(entry.name)
        is_quarantined = table is not None and bool(table.error)
        stopped = "" if table is None or is_quarantined else "The mirror is as of before this statement. "
        results.append(
            check_result(
                NO_GAPS,
                assets.mirror(entry.name),
                [_short(gap) for gap in reversed(entry.gaps)][:3],  # why it is held is the last one
                stopped + _advice(assets.pipeline, int(is_quarantined)),
                {"gaps": dg.MetadataValue.json(list(entry.gaps))},
                is_error=is_quarantined,
            )
        )
    return results


def _short(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"


NO_BREACH = "no_breach"


def no_breach_result(lake: Lake, key: dg.AssetKey) -> dg.AssetCheckResult:
    """Fails if new changes arrived at or below an applied resolved TSO. The metadata has the first position per table."""
    breached = cuts_since_rebuild(lake, "breached", where=[("breaches", ">", 0)])
    repairs = (
        cuts_since_rebuild(lake, "rebuilt_tables", where=[("rebuilt_tables", "longer than", 0)]) if breached else []
    )
    rebuilt = {(name["database"], name["table"]): cut["cut_id"] for cut in repairs for name in cut["rebuilt_tables"]}
    breaches: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for cut in breached:
        for breach in cut["breached"]:
            name = breach["database"], breach["table"]
            if cut["cut_id"] >= rebuilt.get(name, 0):
                breaches[".".join(name)].append(breach)
    total = sum(breach["changes"] for found in breaches.values() for breach in found)
    return check_result(
        NO_BREACH,
        key,
        [f"{total} change(s) arrived after a watermark with a higher TSO"] if breaches else [],
        "They are in change_log, but in no mirror. "
        f"Run {lake.paths.pipeline}_rebuild to apply them, and find out what broke the order of the stream",
        {
            name: f"{sum(breach['changes'] for breach in found)} change(s), the first at "
            f"{Position(*(found[0][column] for column in POSITION))}"
            for name, found in sorted(breaches.items())
        },
        is_error=True,
    )


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


BEFORE_IMAGES = "before_images"


def before_images_results(
    verified: Rows,
    contradicted: Mapping[TableName, Gap],
    mirrors: Iterable[MirrorEntry],
    previous: Mapping[str, Any] | None,
    assets: CheckedAssets,
    touched: Collection[TableName] = (),
) -> list[dg.AssetCheckResult]:
    """Fails if row changes say of their rows what the mirrors did not have. `contradicted`: these mirrors; `mirrors`: all
    of the newest cut, which may have been renamed since they were verified.

    The first result is that of all mirrors, the others are of `touched` and of those that `previous`, its metadata, shows
    otherwise.
    """
    cut = last_verified_cut(verified)
    problems = {str(name): str(gap) for name, gap in sorted(contradicted.items())}
    totals, present = verified_totals(verified).values(), {entry.mirror_id: entry.name for entry in mirrors}
    # those last: a mirror that was dropped may have had the name of another
    named = {TableName(one.database, one.table): one for one in totals if one.mirror_id not in present}
    named |= {present[one.mirror_id]: one for one in totals if one.mirror_id in present}
    tables = {
        name: f"{one.proved} of {one.changes} change(s) proved their row"
        + ("" if one.reason is None else f"; not the newest ones: {one.reason}")
        + ("" if str(name) not in problems else f"; {problems[str(name)]}")
        for name, one in named.items()
    }
    advice = "Compare the tables with upstream; begin them again with a snapshot (`cdc-pipeline docs snapshots`)"
    sums = check_result(
        BEFORE_IMAGES,
        assets.cuts,
        [f"{name}: {problem}" for name, problem in problems.items()],
        advice,
        {"verified_up_to_cut": cut, **{str(name): text for name, text in tables.items()}},
        is_error=True,
    )
    shown = previous or {}
    changed = {name: text for name, text in tables.items() if name in touched or shown.get(str(name)) != text}
    return [sums, *mirror_results(BEFORE_IMAGES, assets, changed, problems, advice)]


NO_FAILED_ATTEMPTS = "no_failed_attempts"


def attempt_result(key: dg.AssetKey, failure: str | None = None, attempt: int = 0) -> dg.AssetCheckResult:
    """Warns if the newest attempt failed with an error that a later one may not meet. `attempt`: failures in a row."""
    return check_result(NO_FAILED_ATTEMPTS, key, [] if failure is None else [failure], "", {"failed_attempts": attempt})
