"""Alerts as text and as JSON."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any

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
    "ddl_held": "To apply the statement and everything behind it, run {pipeline}_approve_ddl.",
    "ddl_not_supported": "Compare the tables with upstream. docs/ddl.md lists what each statement does.",
    "gap": "A mirror may differ from upstream. By the reason: {pipeline}_release_dead_letters, {pipeline}_rebuild or "
    "{pipeline}_approve_ddl (docs/operations.md, Checks).",
    "dead_letters": "Repair and release them with {pipeline}_release_dead_letters.",
    "lag": "Check the changefeed or synchronization task, the sensor {pipeline}_new_offsets and the runs.",
    "quarantine": "Resolve the error, then run {pipeline}_rebuild with the table's name in tables.",
    "run_failed": "The error in the run says what to do. Further failures of this job are not reported until it succeeds.",
    "check_failed": "docs/operations.md, Checks, says what to do.",
}


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
        before = "no longer: " if alert.state == "ended" else ""
        lines = [self.title, *(f"• {before}{line}" for line in alert.lines)]
        if alert.more:
            lines.append(f"and {alert.more} more")
        if alert.state != "ended" and alert.event in _ADVICE:
            lines.append(_ADVICE[alert.event].format(pipeline=alert.pipeline))
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
            "time": datetime.fromtimestamp(alert.time, timezone.utc).isoformat(timespec="seconds"),
            "title": self.title,
            "lines": list(alert.lines),
            "more": alert.more,
            "place": alert.place.text,
            "url": self.link or None,
            "dropped": self.dropped,
            "text": self.text,
        }
