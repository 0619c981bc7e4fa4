"""Passes Spark settings to a new JVM in a private file, because any user of the machine can read a command line."""

from __future__ import annotations

import contextlib
import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_FILE = "--properties-file"
_ESCAPED = {"\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t", "\f": "\\f"}
_IN_NAMES = {" ": "\\ ", ":": "\\:", "=": "\\=", "#": "\\#", "!": "\\!"}


@contextlib.contextmanager
def settings_options(settings: Mapping[str, str], folder: Path, others: str = "") -> Iterator[list[str]]:
    """The spark-submit options that load the settings from a file in `folder`, which exists within the context only.

    `others`: the user's own spark-submit options. If these have a `--properties-file`, the settings become `--conf` options,
    visible in the command line, because spark-submit reads only the last such file.
    """
    if _FILE in others:
        yield [part for name, value in settings.items() for part in ("--conf", f"{name}={value}")]
        return
    descriptor, name = tempfile.mkstemp(dir=folder, prefix="settings-")  # mode 0600
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(properties_text(settings))
        yield [_FILE, name, "--load-spark-defaults"]
    finally:
        Path(name).unlink(missing_ok=True)


def properties_text(settings: Mapping[str, str]) -> str:
    """The settings in the format of Java's `Properties`."""
    return "".join(f"{_escaped(name, _IN_NAMES)}={_escaped(value, {})}\n" for name, value in settings.items())


def _escaped(text: str, more: Mapping[str, str]) -> str:
    escapes = {**_ESCAPED, **more}
    escaped = "".join(escapes.get(character, character) for character in text)
    # Properties skips whitespace before a value
    return f"\\{escaped}" if escaped[:1] == " " else escaped
