"""A start of Spark reuses the jars and the archive of classes that an earlier one left, and does without them if it must."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from cdc_pipeline.spark.java import JavaHome
from cdc_pipeline.spark.session import SparkLakehouse
from cdc_pipeline.spark.start import StartCache

_JAVA = JavaHome(Path("/java/bin/java"), "17.0.15")
_ARCHIVE = bytes.fromhex("a8ab0bf0")


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache folder and a Spark of this test's own."""
    (tmp_path / "spark" / "jars").mkdir(parents=True)
    (tmp_path / "spark" / "jars" / "RoaringBitmap-1.2.1.jar").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("SPARK_HOME", str(tmp_path / "spark"))
    for name in ("JAVA_TOOL_OPTIONS", "SPARK_CONF_DIR", "HADOOP_CONF_DIR", "PYSPARK_SUBMIT_ARGS"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


@pytest.fixture
def jars(home: Path) -> list[Path]:
    """Jars as Ivy stores them: group, underscore, artifact."""
    found = [home / "ivy" / name for name in ("io.delta_delta-4.4.0.jar", "org.roaringbitmap_RoaringBitmap-0.9.25.jar")]
    found[0].parent.mkdir()
    for jar in found:
        jar.write_text("classes")
    return found


def _settings(**more: str) -> dict[str, str]:
    return SparkLakehouse(settings={name.replace("_", "."): value for name, value in more.items()}).session_settings()


def _cache(**more: str) -> StartCache:
    found = StartCache.find(_settings(**more), _JAVA)
    assert found is not None
    return found


def _session(*jars: Path) -> Any:
    listed = {"spark.jars": ",".join(f"file://{jar}" for jar in jars)}
    return SimpleNamespace(sparkContext=SimpleNamespace(getConf=lambda: listed))


def test_first_start_asks_ivy(home: Path) -> None:
    assert _cache().to_settings() == _settings()
    _cache().store_jars(_session())  # a session that was started without Ivy
    assert list((home / "cache" / "cdc_pipeline").iterdir()) == []


def test_later_starts_have_the_jars_that_spark_lacks_on_their_class_path(jars: list[Path]) -> None:
    _cache().store_jars(_session(*jars))
    found = _cache().to_settings()
    assert found["spark.driver.extraClassPath"] == str(jars[0])
    assert not {"spark.jars.packages", "spark.jars.excludes"} & found.keys()
    options = found["spark.driver.defaultJavaOptions"]
    assert options.startswith(_settings()["spark.driver.defaultJavaOptions"])
    assert "-XX:ArchiveClassesAtExit=" in options


def test_an_archive_is_used_when_it_is_complete(jars: list[Path]) -> None:
    _cache().store_jars(_session(*jars))

    def option() -> str:
        options = _cache().to_settings()["spark.driver.defaultJavaOptions"].split()
        return next(text for text in options if ".jsa" in text)

    archive = Path(option().split("=")[1])
    archive.write_bytes(bytes(64))  # its JVM was killed while it wrote
    assert option() == f"-XX:ArchiveClassesAtExit={archive}"
    archive.write_bytes(_ARCHIVE + bytes(64))
    assert option() == f"-XX:SharedArchiveFile={archive}"
    jars[0].write_text("other classes")  # another version
    _cache().store_jars(_session(*jars))
    assert option().startswith("-XX:ArchiveClassesAtExit=")


@pytest.mark.parametrize("damage", ["missing jar", "other size", "no JSON", "other JSON"])
def test_a_cache_that_does_not_fit_is_ignored(home: Path, jars: list[Path], damage: str) -> None:
    _cache().store_jars(_session(*jars))
    (record,) = (home / "cache" / "cdc_pipeline").iterdir()
    assert json.loads(record.read_text(encoding="utf-8"))[0] == [str(jars[0]), 7]
    if damage == "missing jar":
        jars[0].unlink()
    elif damage == "other size":
        jars[0].write_text("part")
    else:
        record.write_text("[[" if damage == "no JSON" else '{"a": 1}', encoding="utf-8")
    assert _cache().to_settings() == _settings()


def test_the_user_decides_about_archives(jars: list[Path]) -> None:
    _cache().store_jars(_session(*jars))
    own = _cache(spark_driver_extraJavaOptions="-Xshare:off").to_settings()
    assert own["spark.driver.defaultJavaOptions"] == _settings()["spark.driver.defaultJavaOptions"]
    assert "spark.driver.extraClassPath" in own


def test_a_path_that_an_option_cannot_have_has_no_archive(
    home: Path, jars: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(home / "First Last"))
    _cache().store_jars(_session(*jars))
    found = _cache().to_settings()
    assert found["spark.driver.defaultJavaOptions"] == _settings()["spark.driver.defaultJavaOptions"]
    assert found["spark.driver.extraClassPath"] == str(jars[0])


def test_an_artifact_is_what_comes_before_the_version(home: Path, jars: list[Path]) -> None:
    (home / "spark" / "jars" / "guava-14.0.1.jar").touch()
    newer = jars[0].with_name("com.google.guava_guava-32.1.2-jre.jar")
    newer.write_text("classes")
    _cache().store_jars(_session(*jars, newer))
    assert _cache().to_settings()["spark.driver.extraClassPath"] == str(jars[0])


def _open_folder(home: Path) -> None:
    (home / "cache" / "cdc_pipeline").mkdir(parents=True)
    (home / "cache" / "cdc_pipeline").chmod(0o777)


def _conf_folder(home: Path) -> None:
    (home / "spark" / "conf").mkdir()


def _file_as_cache(home: Path) -> None:
    (home / "cache").touch()


@pytest.mark.parametrize("prepare", [_open_folder, _conf_folder, _file_as_cache])
def test_there_is_no_cache_in(home: Path, prepare: Callable[[Path], None]) -> None:
    """A folder that others may write; a Spark with a folder of settings on its class path; a path that is no folder."""
    prepare(home)
    assert StartCache.find(_settings(), _JAVA) is None


def test_there_is_no_cache_with_options_of_spark_submit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYSPARK_SUBMIT_ARGS", "--jars own.jar pyspark-shell")
    assert StartCache.find(_settings(), _JAVA) is None
    monkeypatch.setenv("PYSPARK_SUBMIT_ARGS", "pyspark-shell")
    assert StartCache.find(_settings(), _JAVA) is not None


def test_there_is_no_cache_without_a_home(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setattr(Path, "expanduser", _no_home)
    assert StartCache.find(_settings(), _JAVA) is None


def _no_home(_: Path) -> Path:
    raise RuntimeError("Could not determine home directory.")


@pytest.mark.parametrize(
    "more", [{"spark_master": "yarn"}, {"spark_jars": "own.jar"}, {"spark_driver_extraClassPath": "own.jar"}]
)
def test_there_is_no_cache_with(more: dict[str, str]) -> None:
    assert StartCache.find(_settings(**more), _JAVA) is None


_PROGRAM = """
import sys
from cdc_pipeline.spark.session import SparkLakehouse
spark = SparkLakehouse(master="local[1]", driver_memory="512m").start(short_lived=True)
spark.range(3).write.format("delta").mode("append").save(sys.argv[1])
print(spark.read.format("delta").load(sys.argv[1]).count(), flush=True)
arguments = spark._jvm.java.lang.management.ManagementFactory.getRuntimeMXBean().getInputArguments()
print(*(text for text in arguments if ".jsa" in text), flush=True)
"""


@pytest.mark.jvm
def test_three_starts_of_spark(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first finds the jars, the second writes the archive, the third uses it. A damaged one is ignored in silence."""
    monkeypatch.delenv("SPARK_HOME")
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYSPARK_")}

    def start() -> tuple[str, str, str]:
        ended = subprocess.run(
            [sys.executable, "-c", _PROGRAM, str(home / "table")],
            env=environment,
            cwd=Path(__file__).parents[2],
            capture_output=True,
            text=True,
            timeout=600,
        )
        assert ended.returncode == 0, ended.stderr
        # a slow start reports its progress
        printed = [line for line in ended.stdout.splitlines() if not line.startswith("  starting Spark")]
        count, option = printed
        return count, option.split("=")[0], ended.stderr

    assert start() == ("3", "", "")
    assert start() == ("6", "-XX:ArchiveClassesAtExit", "")
    assert start() == ("9", "-XX:SharedArchiveFile", "")
    (archive,) = (home / "cache" / "cdc_pipeline").glob("*.jsa")
    archive.chmod(0o600)
    archive.write_bytes(_ARCHIVE + bytes(4096))
    assert start() == ("12", "-XX:SharedArchiveFile", "")
