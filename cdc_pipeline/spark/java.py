"""Finds the Java that Spark will start and checks its version, with one-line errors.

Without a usable Java, PySpark fails with a page of stack trace. Imports only the standard library, because
scripts/bootstrap.py loads this file by its path before anything is installed.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

# The versions that Spark 4.0 and 4.1 support. It starts on some others but fails later, with unrelated errors.
SUPPORTED_MAJORS = (17, 21)
NEEDED = "Java 17 or 21"
TIMEOUT_SECONDS = 20.0

# `openjdk version "17.0.15" 2025-04-15`, `java version "1.8.0_402"`. Other lines may precede it, such as
# "Picked up JAVA_TOOL_OPTIONS: ...".
_VERSION_LINE = re.compile(r'^\S+ version "([^"]*)"', re.MULTILINE)
# Up to Java 8 the major version is the second number; "25-ea" is an early-access build of 25.
_MAJOR = re.compile(r"(?:1\.)?(\d+)(?![^._+-])")


class JavaError(RuntimeError):
    """Spark cannot start with this machine's Java. The message is one line."""

    def __init__(self, found: str) -> None:
        super().__init__(f"{NEEDED} is needed (JAVA_HOME, or java on PATH); found: {found}")


@dataclass(frozen=True)
class JavaHome:
    """A Java installation."""

    path: Path
    """The executable."""
    version: str
    """The full version, such as `17.0.15`."""


def require_java(environ: Mapping[str, str] | None = None, timeout: float = TIMEOUT_SECONDS) -> JavaHome:
    """The Java that Spark will start. Raises JavaError if there is none, its version cannot be read or is not supported."""
    path = _locate(os.environ if environ is None else environ)
    version = _version(path, timeout)
    major = _MAJOR.match(version)
    if major is None:
        raise JavaError(f"{path} with the unknown version {version!r}")
    if int(major[1]) not in SUPPORTED_MAJORS:
        raise JavaError(f"{path} is Java {version}")
    return JavaHome(path, version)


def _locate(environ: Mapping[str, str]) -> Path:
    """The executable of JAVA_HOME if that is set, else the first on PATH, as Spark's launcher chooses it."""
    home = environ.get("JAVA_HOME", "")
    if home:
        path = Path(home, "bin", "java")
        if not path.is_file():
            raise JavaError(f"JAVA_HOME is {home}, which has no bin/java")
        return path
    executable = shutil.which("java", path=environ.get("PATH", ""))
    if executable is None:
        raise JavaError("no java on PATH and JAVA_HOME is not set")
    return Path(executable)


def _version(path: Path, timeout: float) -> str:
    """The quoted version in the output of `java -version`."""
    try:
        done = subprocess.run(
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
        raise JavaError(f"{path} -version did not end within {timeout:g} s") from None
    except OSError as error:
        raise JavaError(f"{path} cannot be run ({error.strerror})") from None
    line = _VERSION_LINE.search(done.stdout)
    if done.returncode != 0 or line is None:
        output = done.stdout.strip().splitlines()
        said = f"first line {output[0][:120]!r}" if output else "no output"
        raise JavaError(f"{path} -version prints no version: exit status {done.returncode}, {said}")
    return line[1]
