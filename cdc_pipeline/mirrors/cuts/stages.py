"""How long each stage of a cut takes."""

from __future__ import annotations

import time


class Stages:
    """Seconds by stage, in the order in which the stages end. A stage begins when the one before it ends."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._since = time.monotonic()

    def end(self, stage: str) -> None:
        now = time.monotonic()
        self.seconds[stage] = self.seconds.get(stage, 0.0) + now - self._since
        self._since = now
