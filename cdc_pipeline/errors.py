"""What can go wrong, in two kinds: terminal (the same run will fail again until someone acts) and transient (try again).

Retries follow from the kind: see `cdc_pipeline.assets.failures`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable


class CdcError(Exception):
    """An error with its place: pipeline, topic, partition and offset, as far as they are known."""

    def __init__(
        self,
        message: str,
        *,
        pipeline: str | None = None,
        topic: str | None = None,
        partition: int | None = None,
        offset: int | None = None,
    ) -> None:
        place = {"pipeline": pipeline, "topic": topic, "partition": partition, "offset": offset}
        self.place = {name: value for name, value in place.items() if value is not None}
        where = ", ".join(f"{name} {value}" for name, value in self.place.items())
        super().__init__(f"{message} [{where}]" if where else message)


class TerminalError(CdcError):
    """Will fail again in the same way until configuration, input or the lake is put right."""


class TransientError(CdcError):
    """May pass when tried again: a broker or a disk that did not answer."""


class SourceError(TerminalError):
    """The source cannot be read as what it is declared to be."""


class DeclarationError(TerminalError):
    """What a pipeline declares does not do for what has come."""


class LakeError(TerminalError):
    """The lake cannot be written, or holds what this version did not write."""


def without(text: str, secrets: Iterable[str]) -> str:
    """The text with each secret replaced by stars. Longer secrets come first in `secrets`, where one is part of another."""
    for secret in secrets:
        text = text.replace(secret, "***")
    return text
