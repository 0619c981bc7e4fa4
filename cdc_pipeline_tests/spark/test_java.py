"""Search and version check of Java. Each case is a fake `java`: a shell script with the output of a real one."""

from __future__ import annotations

import importlib.util
import sys
import time
from pathlib import Path

import pytest

from cdc_pipeline.spark import java as java_module
from cdc_pipeline.spark.java import JavaError, JavaHome, require_java

NEEDED = "Java 17 or 21 is needed (JAVA_HOME, or java on PATH); found: "

VERSIONS = [
    # output of `java -version`, major, version
    ('openjdk version "17.0.15" 2025-04-15\nOpenJDK Runtime Environment (build 17.0.15+6)', 17, "17.0.15"),
    ('openjdk version "21" 2023-09-19', 21, "21"),
    ('openjdk version "21.0.7" 2025-04-15 LTS', 21, "21.0.7"),
    ('java version "1.8.0_402"', 8, "1.8.0_402"),
    ('java version "10.0.2" 2018-07-17', 10, "10.0.2"),
    ('openjdk version "11.0.22" 2024-01-16', 11, "11.0.22"),
    ('openjdk version "25-ea" 2025-09-16', 25, "25-ea"),
    ('openjdk version "17-internal" 2021-09-14', 17, "17-internal"),
    ('openjdk version "18+36" 2022-03-22', 18, "18+36"),
    ('Picked up JAVA_TOOL_OPTIONS: -Dsome.version="9"\nopenjdk version "17.0.1"', 17, "17.0.1"),
]

BROKEN = [
    # script, end of the error message
    ("echo 'hello' >&2", "{java} -version prints no version: exit status 0, first line 'hello'"),
    ("exit 0", "{java} -version prints no version: exit status 0, no output"),
    ("printf '\\377\\376' >&2", "{java} -version prints no version: exit status 0, first line '\ufffd\ufffd'"),
    (
        "echo 'No Java runtime present, requesting install.' >&2; exit 1",
        "{java} -version prints no version: exit status 1, first line 'No Java runtime present, requesting install.'",
    ),
    (
        "echo 'openjdk version \"17.0.15\"' >&2; exit 3",
        "{java} -version prints no version: exit status 3, first line 'openjdk version \"17.0.15\"'",
    ),
    ("echo 'openjdk version \"unknown\"' >&2", "{java} with the unknown version 'unknown'"),
    ("echo 'openjdk version \"17rest\"' >&2", "{java} with the unknown version '17rest'"),
    ("echo 'openjdk version \"\"' >&2", "{java} with the unknown version ''"),
]


def fake_java(home: Path, script: str) -> Path:
    """Makes `home` a JAVA_HOME whose bin/java is the script."""
    executable = home / "bin" / "java"
    executable.parent.mkdir(parents=True)
    executable.write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
    executable.chmod(0o755)
    return executable


def saying(text: str, stream: str = "&2") -> str:
    return f"cat >{stream} <<'END'\n{text}\nEND"


@pytest.mark.parametrize(("text", "major", "version"), VERSIONS)
def test_reads_every_form_of_version(tmp_path: Path, text: str, major: int, version: str) -> None:
    executable = fake_java(tmp_path, saying(text))
    environ = {"JAVA_HOME": str(tmp_path)}
    expected = JavaHome(path=executable, version=version)
    if major in (17, 21):
        assert require_java(environ) == expected
    else:
        with pytest.raises(JavaError) as raised:
            require_java(environ)
        assert str(raised.value) == f"{NEEDED}{executable} is Java {version}"


@pytest.mark.parametrize(("script", "found"), BROKEN)
def test_a_java_without_a_version_is_one_clear_line(tmp_path: Path, script: str, found: str) -> None:
    executable = fake_java(tmp_path, script)
    with pytest.raises(JavaError) as raised:
        require_java({"JAVA_HOME": str(tmp_path)})
    assert str(raised.value) == NEEDED + found.format(java=executable)


def test_a_java_that_hangs_is_given_up(tmp_path: Path) -> None:
    executable = fake_java(tmp_path, "exec sleep 30")
    before = time.monotonic()
    with pytest.raises(JavaError) as raised:
        require_java({"JAVA_HOME": str(tmp_path)}, timeout=0.3)
    assert str(raised.value) == f"{NEEDED}{executable} -version did not end within 0.3 s"
    assert time.monotonic() - before < 10


def test_a_file_that_no_machine_can_run(tmp_path: Path) -> None:
    executable = fake_java(tmp_path, "")
    executable.write_bytes(b"\x7fELF")
    with pytest.raises(JavaError) as raised:
        require_java({"JAVA_HOME": str(tmp_path)})
    assert str(raised.value) == f"{NEEDED}{executable} cannot be run (Exec format error)"


def test_version_on_stdout_counts_too(tmp_path: Path) -> None:
    fake_java(tmp_path, saying('openjdk version "21.0.1"', stream="&1"))
    assert require_java({"JAVA_HOME": str(tmp_path)}).version == "21.0.1"


def test_java_home_comes_before_path(tmp_path: Path) -> None:
    at_home = fake_java(tmp_path / "home", saying('openjdk version "17.0.15"'))
    on_path = fake_java(tmp_path / "path", saying('openjdk version "21.0.7"'))
    path = str(on_path.parent)
    assert require_java({"JAVA_HOME": str(tmp_path / "home"), "PATH": path}).path == at_home
    assert require_java({"JAVA_HOME": "", "PATH": path}).path == on_path
    assert require_java({"PATH": path}).path == on_path


def test_the_environment_of_the_process_is_the_default(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    executable = fake_java(tmp_path, saying('openjdk version "17.0.15"'))
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert require_java().path == executable


@pytest.mark.parametrize(
    ("environ", "found"),
    [
        ({}, "no java on PATH and JAVA_HOME is not set"),
        ({"PATH": "{tmp_path}/empty"}, "no java on PATH and JAVA_HOME is not set"),
        # a wrong JAVA_HOME is an error even with a good java on PATH, as in Spark's launcher
        (
            {"JAVA_HOME": "{tmp_path}/nowhere", "PATH": "{tmp_path}/good/bin"},
            "JAVA_HOME is {tmp_path}/nowhere, which has no bin/java",
        ),
    ],
)
def test_no_java(tmp_path: Path, environ: dict[str, str], found: str) -> None:
    fake_java(tmp_path / "good", saying('openjdk version "17.0.15"'))
    with pytest.raises(JavaError) as raised:
        require_java({name: value.format(tmp_path=tmp_path) for name, value in environ.items()})
    assert str(raised.value) == NEEDED + found.format(tmp_path=tmp_path)


def test_loads_by_its_path_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """As scripts/bootstrap.py does before anything is installed."""
    spec = importlib.util.spec_from_file_location("java_by_path", Path(java_module.__file__))
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, spec.name, module)
    spec.loader.exec_module(module)
    assert module.NEEDED == java_module.NEEDED
