"""Where the time of a cut goes."""

from __future__ import annotations

import time


class Stages:
    """Seconds by stage, in the order in which they ended. Each begins where the one before ended."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._since = time.monotonic()

    def ended(self, stage: str) -> None:
        now = time.monotonic()
        self.seconds[stage] = self.seconds.get(stage, 0.0) + now - self._since
        self._since = now
