"""Settings on their way to a JVM that is started: through a file that only this user can read. What stands in a command line
any user of the machine can read.
"""

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
    """The options of spark-submit by which it reads the settings from a file in the folder, as if each had been told by
    `--conf`; the file is there until the end of the `with`. `others` are options that it is told besides: of two files it
    would read the last, so that beside one of somebody's own these do stand in the command line."""
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
    """The settings as Java's Properties reads them."""
    return "".join(f"{_escaped(name, _IN_NAMES)}={_escaped(value, {})}\n" for name, value in settings.items())


def _escaped(text: str, more: Mapping[str, str]) -> str:
    escapes = {**_ESCAPED, **more}
    escaped = "".join(escapes.get(character, character) for character in text)
    # Properties passes over white space before a value
    return f"\\{escaped}" if escaped[:1] == " " else escaped
