"""Creates .venv from requirements.lock, or fails with one line. The Makefile calls it before every target.

Uses the standard library and the syntax of Python 3.8, so that an old interpreter can report that it is too old. The pip
settings of the machine (PIP_*, pip.conf) apply.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib.util
import re
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
TAIL_LINES = 25


class SetupError(Exception):
    """The cause in one line, followed by the last lines of an installer's output if there are any."""


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--java", action="store_true", help="also check for a Java that Spark supports")
    parser.add_argument("--check-only", action="store_true", help="check Python and Java; install nothing")
    options = parser.parse_args(arguments)
    try:
        venv = Venv(ROOT)
        stale = venv.stale()
        if stale or options.check_only:
            check_python(tuple(sys.version_info[:3]), sys.executable, (ROOT / "pyproject.toml").read_text("utf-8"))
        if options.java:
            check_java()  # before the slow installation
        if stale and not options.check_only:
            venv.build(stale)
    except SetupError as error:
        print(f"[setup] {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\n[setup] interrupted; the next make starts over", file=sys.stderr)
        return 130
    return 0


def check_python(version: tuple[int, ...], executable: str, pyproject: str) -> None:
    """Raises SetupError if the version is outside `requires-python` of pyproject.toml."""
    bounds = re.search(r'^requires-python = ">=(\d+)\.(\d+),<(\d+)\.(\d+)"', pyproject, re.MULTILINE)
    if bounds is None:
        raise SetupError('pyproject.toml: expected requires-python = ">=X.Y,<X.Y"')
    low_major, low, high_major, high = (int(bound) for bound in bounds.groups())
    if not (low_major, low) <= version[:2] < (high_major, high):
        raise SetupError(
            f"Python {low_major}.{low} to {high_major}.{high - 1} is required, found {'.'.join(map(str, version))} at "
            f"{executable}. Choose another one with: make PYTHON=/path/to/python3"
        )


def check_java() -> None:
    """Runs the package's own check, loaded by its path because the package is not installed yet."""
    java: Any = load_by_path("cdc_pipeline_java", ROOT / "cdc_pipeline" / "spark" / "java.py")
    try:
        java.require_java()
    except java.JavaError as error:
        raise SetupError(str(error)) from None


def load_by_path(name: str, path: Path) -> Any:
    spec = importlib.util.spec_from_file_location(name, str(path))
    if spec is None or spec.loader is None:
        raise SetupError(f"cannot load {path}")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses look up their module here
    spec.loader.exec_module(module)
    return module


class Venv:
    """The .venv of this checkout. Its stamp has the digests of the two files that it was created from."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.directory = root / ".venv"
        self.python = self.directory / "bin" / "python"
        self.stamp = self.directory / ".made-from"
        self.log = self.directory / "install.log"

    def stale(self) -> list[str]:
        """The files whose present content .venv was not created from. Compares content, because git resets times."""
        if not (self.python.exists() and self.stamp.exists()):
            return list(self.digests())
        made_from = self.stamp.read_text("utf-8").splitlines()
        return [name for name, digest in self.digests().items() if f"{digest} {name}" not in made_from]

    def digests(self) -> dict[str, str]:
        names = ("requirements.lock", "pyproject.toml")
        return {name: hashlib.sha256((self.root / name).read_bytes()).hexdigest() for name in names}

    def build(self, stale: list[str]) -> None:
        """Recreates .venv if the lock changed, so that no old package remains; else reinstalls the project only."""
        begin = time.monotonic()
        digests = self.digests()  # before the installation, in case a file changes meanwhile
        if "requirements.lock" in stale:
            self.stamp.unlink(missing_ok=True)  # .venv is incomplete until the end
            self.create()
            self.install_lock()
        self.install_project()
        self.check()
        self.stamp.write_text("".join(f"{digest} {name}\n" for name, digest in digests.items()), "utf-8")
        print(f"[setup] .venv is ready after {time.monotonic() - begin:.0f} s", flush=True)

    def create(self) -> None:
        if importlib.util.find_spec("ensurepip") is None or importlib.util.find_spec("venv") is None:
            raise SetupError(
                f"{sys.executable} cannot create a virtual environment: its module ensurepip is missing. "
                "On Debian and Ubuntu: apt-get install python3-venv"
            )
        say(1, "creating .venv with Python {}.{}.{}".format(*sys.version_info[:3]))
        # Not sys.executable: if .venv is active, --clear would delete that file.
        base = getattr(sys, "_base_executable", None) or sys.executable
        self.run([base, "-m", "venv", "--clear", str(self.directory)], "cannot create .venv")

    def install_lock(self) -> None:
        # An upper bound: some packages are for other systems or Python versions.
        lock = (self.root / "requirements.lock").read_text("utf-8")
        count = len(set(re.findall(r"^([A-Za-z0-9._-]+)==", lock, re.MULTILINE)))
        say(2, f"installing up to {count} packages from requirements.lock (about a minute)")
        # The lock names every package, so --no-deps saves time. It also avoids that pip's resolver treats
        # gql[requests] as unpinned when the lock has gql (pypa/pip#9644). check() verifies the dependencies.
        self.pip(["--no-deps", "--require-hashes", "-r", "requirements.lock"], "cannot install requirements.lock")

    def install_project(self) -> None:
        say(3, "installing cdc_pipeline itself, editable")
        # Without isolation setuptools comes from the lock, so nothing is downloaded.
        self.pip(["--no-deps", "--no-build-isolation", "-e", "."], "cannot install cdc_pipeline")

    def check(self) -> None:
        """Finds dependencies of pyproject.toml that the lock lacks."""
        command = [str(self.python), "-m", "pip", "--disable-pip-version-check", "check"]
        self.run(command, "requirements.lock does not fit pyproject.toml; update it with: make lock")

    def pip(self, arguments: list[str], failure: str) -> None:
        quiet = ["--quiet", "--disable-pip-version-check", "--progress-bar", "off"]
        self.run([str(self.python), "-m", "pip", "install", *quiet, *arguments], failure)

    def run(self, command: list[str], failure: str) -> None:
        """Appends the output to the log. Raises SetupError with its last lines if the command fails."""
        done = subprocess.run(
            command,
            cwd=str(self.root),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            encoding="utf-8",
            errors="replace",
            check=False,
        )
        self.directory.mkdir(exist_ok=True)
        with self.log.open("a", encoding="utf-8") as log:
            log.write(f"$ {' '.join(command)}\n{done.stdout}")
        if done.returncode != 0:
            tail = "\n".join(done.stdout.rstrip().splitlines()[-TAIL_LINES:])
            raise SetupError(f"{failure}. Complete output: .venv/{self.log.name}. Last lines:\n{tail}")


def say(step: int, what: str) -> None:
    print(f"[setup {step}/3] {what} ...", flush=True)


if __name__ == "__main__":
    sys.exit(main())
