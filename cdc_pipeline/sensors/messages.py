"""Alerts as text and as JSON."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any

from cdc_pipeline.checks.balance import BALANCE
from cdc_pipeline.checks.failed_attempts import NO_FAILED_ATTEMPTS
from cdc_pipeline.checks.field_rules import FIELD_RULES
from cdc_pipeline.checks.keys_hold import KEYS_HOLD
from cdc_pipeline.checks.lost_offsets import NO_LOST_OFFSETS
from cdc_pipeline.checks.no_breach import NO_BREACH
from cdc_pipeline.checks.schema_matches_ddl import SCHEMA_MATCHES_DDL

if TYPE_CHECKING:
    from cdc_pipeline.sensors.alerts import Alert, Event, State

_TITLES: dict[Event, dict[State, str]] = {
    "ddl_applied": {"occurred": "DDL was applied"},
    "ddl_held": {"began": "DDL is held", "ended": "DDL is no longer held"},
    "ddl_not_supported": {"occurred": "DDL was not applied"},
    "gap": {"began": "gap opened", "ended": "gap closed"},
    "dead_letters": {"began": "dead letters", "ended": "dead letters are gone"},
    "lag": {"began": "mirrors lag", "ended": "mirrors no longer lag"},
    "quarantine": {"began": "table is quarantined", "ended": "quarantine ended"},
    "run_failed": {"began": "run failed", "ended": "runs succeed again"},
    "check_failed": {"began": "check does not pass", "ended": "check passes again"},
}
_ADVICE: dict[Event, str] = {
    "ddl_held": "Only these tables wait, at their state before the statement. {pipeline}_ddl_dry_run shows the effect, "
    "{pipeline}_approve_ddl with the table's name in tables applies it in the next run.",
    "ddl_not_supported": "Later changes of these tables are applied. Compare the tables with upstream. "
    "`cdc-pipeline docs ddl` lists what each statement does.",
    "lag": "Readers see this older state. Check the changefeed or synchronization task, the sensor "
    "{pipeline}_new_offsets and the runs.",
    "quarantine": "Only changes of this table wait. Resolve the error, then run {pipeline}_rebuild with the table's name in "
    "tables.",
    "run_failed": "The next run continues from what was committed. Follow `cdc-pipeline docs operations failed runs`. "
    "Until the job succeeds, it is reported again only for another error.",
}
_RELEASE = (
    "Other records are applied. `cdc-pipeline letters` shows the reasons; {pipeline}_release_dead_letters repairs "
    "(`cdc-pipeline docs operations dead letters`)."
)
_GAPS = "Other tables are not affected. `cdc-pipeline docs operations gaps` says what closes a gap."
_CHECKS: dict[str, str] = {
    BALANCE: "The run stopped at this check. Run {pipeline}_rebuild.",
    FIELD_RULES: "Only a warning: these messages were decoded and applied. More: "
    "`cdc-pipeline docs dialects all field rules`.",
    KEYS_HOLD: "Run {pipeline}_rebuild with the table's name in tables.",
    NO_BREACH: "Run {pipeline}_rebuild, and find what broke the stream's order.",
    NO_FAILED_ATTEMPTS: "The run tries again by itself.",
    NO_LOST_OFFSETS: "Rows are missing in the mirrors of this topic until upstream sends a new snapshot.",
    SCHEMA_MATCHES_DDL: "Run {pipeline}_rebuild with the table's name in tables.",
}


def _advice(alert: Alert) -> str:
    """What to do now; empty if nothing."""
    if alert.state == "ended":
        return ""
    if alert.event == "check_failed":
        own = _CHECKS.get(alert.place.text.rpartition(", check ")[2], "")
        return f"{own} More: `cdc-pipeline docs operations checks`.".lstrip()
    if alert.event == "gap":
        is_dead = ["dead letters of rule" in line or "see dead_letters" in line for line in alert.lines]
        return " ".join([_RELEASE] * any(is_dead) + [_GAPS] * (alert.more > 0 or not all(is_dead)))
    return _RELEASE if alert.event == "dead_letters" else _ADVICE.get(alert.event, "")


@dataclass(frozen=True)
class Message:
    """An alert for one channel."""

    alert: Alert
    ui_url: str = ""
    """Address of Dagster's UI without a slash at its end; empty if not declared."""
    dropped: int = 0
    """Number of earlier messages that this channel never got."""

    @property
    def title(self) -> str:
        alert = self.alert
        count = len(alert.lines) + alert.more
        return f"{alert.pipeline}: {_TITLES[alert.event][alert.state]}{f' ({count})' if count > 1 else ''}"

    @property
    def link(self) -> str:
        return f"{self.ui_url}/{self.alert.place.path}" if self.ui_url else ""

    @property
    def text(self) -> str:
        alert = self.alert
        lines = [f"{self.title}, {_utc(alert.time):%Y-%m-%d %H:%M} UTC"]
        # the first sentence of what ended, without its advice
        ended = alert.state == "ended"
        lines += [f"• no longer: {line.partition('. ')[0]}" if ended else f"• {line}" for line in alert.lines]
        if alert.more:
            lines.append(f"and {alert.more} more")
        if advice := _advice(alert):
            lines.append(advice.format(pipeline=alert.pipeline))
        if self.dropped:
            lines.append(f"{self.dropped} earlier alerts were not delivered: too many waited for this channel.")
        return "\n".join([*lines, self.link or alert.place.text])

    @property
    def fields(self) -> dict[str, Any]:
        """The message as JSON."""
        alert = self.alert
        return {
            "pipeline": alert.pipeline,
            "event": alert.event,
            "state": alert.state,
            "time": _utc(alert.time).isoformat(timespec="seconds"),
            "title": self.title,
            "lines": list(alert.lines),
            "more": alert.more,
            "place": alert.place.text,
            "url": self.link or None,
            "dropped": self.dropped,
            "text": self.text,
        }


def _utc(time: float) -> datetime:
    return datetime.fromtimestamp(time, timezone.utc)
