"""Exceptions of the package: terminal (fail until someone acts) or transient (a retry may succeed).

`cdc_pipeline.assets.failures` converts them to Dagster failures and retries.
"""

from __future__ import annotations

from collections.abc import Iterable

SECRET_SETTINGS = r"(?i)secret|password|passphrase|token|jaas|access[.]?key|url|key([.]pem)?$"
"""Regular expression, for Python and Java, of the names of settings whose values are secrets."""


class CdcError(Exception):
    """An error with its position, as far as known: pipeline, topic, partition and offset. The message includes it."""

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
    """Fails again until someone repairs configuration, input or lake."""


class TransientError(CdcError):
    """A retry may succeed: for example, a broker or a disk did not answer."""


class SourceError(TerminalError):
    """The source cannot be read as declared."""


class DeclarationError(TerminalError):
    """The declaration of the pipeline does not match the data."""


class LakeError(TerminalError):
    """The lake cannot be read or written, or has contents that this version did not write."""


class StoreRefusesError(LakeError):
    """An object store refuses a request: a right, the right region or a valid token is missing."""


def redact(text: str, secrets: Iterable[str]) -> str:
    """The text with each secret replaced by `***`. A secret that contains another must precede it in `secrets`."""
    for secret in secrets:
        text = text.replace(secret, "***")
    return text
