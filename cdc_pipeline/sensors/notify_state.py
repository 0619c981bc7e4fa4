"""The cursor of the sensor `<pipeline>_notify`: what was processed, what is failing, and which messages wait. Bounded."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from cdc_pipeline.errors import LakeError
from cdc_pipeline.sensors.alerts import Alert, Failing  # noqa: TC001  # pydantic reads the annotations
from cdc_pipeline.stored_json import StoredJson

MOST_WAITING = 20


@dataclass(frozen=True)
class Waiting:
    alert: Alert
    channels: tuple[str, ...]
    """Names of the channels that do not have it yet."""


@dataclass(frozen=True)
class NotifyState:
    evaluated: int | None = None
    """Storage id of the newest processed result of a check. None: none was processed."""
    conditions: dict[str, dict[str, int]] = field(default_factory=dict)
    """asset:check → the conditions that it reported, by key, and the level of each."""
    cut: int | None = None
    """Storage id of the newest processed materialization of `consistent_cuts`. None: none was processed."""
    failures: int | None = None
    """Storage id of the newest processed failure of a run."""
    successes: int | None = None
    failing: dict[str, Failing] = field(default_factory=dict)
    waiting: tuple[Waiting, ...] = ()
    """Messages, oldest first."""
    dropped: dict[str, int] = field(default_factory=dict)
    """Channel → number of messages that it never got, because too many waited."""

    @classmethod
    def parse(cls, cursor: str | None) -> NotifyState:
        """The state in a cursor. A missing or damaged cursor is an empty state."""
        if not cursor:
            return cls()
        try:
            return _JSON.from_json(cursor)
        except LakeError:
            return cls()

    def to_cursor(self) -> str:
        return _JSON.to_json(self)

    def with_alerts(self, alerts: list[Alert], channels: tuple[str, ...]) -> NotifyState:
        """The state with new messages for these channels, and without channels that are no longer declared."""
        waiting = [
            replace(kept, channels=tuple(name for name in kept.channels if name in channels)) for kept in self.waiting
        ]
        waiting += [Waiting(alert, channels) for alert in alerts]
        dropped = {name: count for name, count in self.dropped.items() if name in channels}
        return replace(self, waiting=tuple(kept for kept in waiting if kept.channels), dropped=dropped)

    def after_delivery(self, sent: dict[str, frozenset[int]]) -> NotifyState:
        """The state after delivery. `sent`: channel → indexes of the messages that it has now.

        Drops and counts the oldest messages if more than `MOST_WAITING` wait.
        """
        waiting = []
        for index, kept in enumerate(self.waiting):
            missing = tuple(name for name in kept.channels if index not in sent.get(name, frozenset()))
            if missing:
                waiting.append(replace(kept, channels=missing))
        # a channel that got a message got the number of dropped ones with it
        dropped = {name: count for name, count in self.dropped.items() if not sent.get(name)}
        too_many = max(0, len(waiting) - MOST_WAITING)
        for kept in waiting[:too_many]:
            for name in kept.channels:
                dropped[name] = dropped.get(name, 0) + 1
        return replace(self, waiting=tuple(waiting[too_many:]), dropped=dropped)


_JSON = StoredJson(NotifyState)
