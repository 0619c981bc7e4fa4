"""The check `no_breach`: changes below an applied resolved TSO that were never seen before. A rebuild applies them."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any

from cdc_pipeline.checks.markdown import check_result
from cdc_pipeline.lake.tables.consistent_cuts import cuts_since_rebuild
from cdc_pipeline.positions import POSITION, Position

if TYPE_CHECKING:
    import dagster as dg

    from cdc_pipeline.lake.lake import Lake


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
