"""Finds the Java that Spark is going to start, and says in one line what is wrong with it.

PySpark without a usable Java fails with a page of stack trace, so this is asked first. Only the standard library is
used: scripts/bootstrap.py loads this file by its path, before anything is installed.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

# What Spark 4.0 supports. It starts on some others, and then fails far from the cause.
SUPPORTED_MAJORS = (17, 21)
NEEDED = "Java 17 or 21"
TIMEOUT_SECONDS = 20.0

# `openjdk version "17.0.15" 2025-04-15`, `java version "1.8.0_402"`. Other lines may come before it, such as
# "Picked up JAVA_TOOL_OPTIONS: ...".
_VERSION_LINE = re.compile(r'^\S+ version "([^"]*)"', re.MULTILINE)
# Up to Java 8 the major version is the second number; "25-ea" is an early-access build of 25.
_MAJOR = re.compile(r"(?:1\.)?(\d+)(?![^._+-])")


class JavaError(RuntimeError):
    """Spark cannot be started with the Java of this machine; the message is one line."""


class JavaNotFoundError(JavaError):
    """There is no Java where Spark looks for it."""


class JavaVersionError(JavaError):
    """There is a Java, but it is not one that Spark supports, or it does not tell its version."""


@dataclass(frozen=True)
class JavaHome:
    """A Java that answered: its executable, `17`, and `17.0.15`."""

    path: Path
    major: int
    version: str


def require_java(environ: Mapping[str, str] | None = None, timeout: float = TIMEOUT_SECONDS) -> JavaHome:
    """The Java that Spark will start, which is one that it supports."""
    java = find_java(environ, timeout)
    if java.major not in SUPPORTED_MAJORS:
        raise JavaVersionError(_message(f"{java.path} is Java {java.version}"))
    return java


def find_java(environ: Mapping[str, str] | None = None, timeout: float = TIMEOUT_SECONDS) -> JavaHome:
    """The Java that Spark will start, whatever its version."""
    path = _locate(os.environ if environ is None else environ)
    version = _version(path, timeout)
    major = _MAJOR.match(version)
    if major is None:
        raise JavaVersionError(_message(f"{path} calls its version {version!r}"))
    return JavaHome(path, int(major.group(1)), version)


def _locate(environ: Mapping[str, str]) -> Path:
    """JAVA_HOME before PATH, and no second try when JAVA_HOME is wrong: Spark's own launcher does the same."""
    home = environ.get("JAVA_HOME", "")
    if home:
        path = Path(home, "bin", "java")
        if not path.is_file():
            raise JavaNotFoundError(_message(f"JAVA_HOME is {home}, where there is no bin/java"))
        return path
    found = shutil.which("java", path=environ.get("PATH", ""))
    if found is None:
        raise JavaNotFoundError(_message("no java on PATH and JAVA_HOME is not set"))
    return Path(found)


def _version(path: Path, timeout: float) -> str:
    """What stands between the quotes of `java -version`."""
    try:
        answer = subprocess.run(
            [str(path), "-version"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            encoding="utf-8",
            errors="replace",
            timeout=timeout,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise JavaVersionError(_message(f"{path} -version gave no answer in {timeout:g} s")) from None
    except OSError as error:
        raise JavaVersionError(_message(f"{path} cannot be run ({error.strerror})")) from None
    line = _VERSION_LINE.search(answer.stdout)
    if answer.returncode != 0 or line is None:
        said = answer.stdout.strip().splitlines()
        raise JavaVersionError(
            _message(
                f"{path} -version does not tell a version: exit status {answer.returncode}, "
                + (f"first line {said[0][:120]!r}" if said else "no output")
            )
        )
    return line.group(1)


def _message(found: str) -> str:
    return f"{NEEDED} is needed (JAVA_HOME, or java on PATH); found: {found}"
