"""The class path: stored while its jars exist, and one clear error if they cannot be fetched."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from cdc_pipeline.errors import TransientError
from cdc_pipeline_tests.local_kafka.jars import KAFKA_VERSION, SLF4J_VERSION, broker_class_path


@pytest.fixture
def no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sends Java's requests to a closed port."""
    monkeypatch.setenv("JAVA_TOOL_OPTIONS", "-Dhttps.proxyHost=127.0.0.1 -Dhttps.proxyPort=9")


def remembered(home: Path, *names: str) -> str:
    class_path = os.pathsep.join(str(home / name) for name in names)
    (home / f"class_path-{KAFKA_VERSION}-{SLF4J_VERSION}").write_text(class_path)
    return class_path


@pytest.mark.usefixtures("no_network")
def test_a_class_path_whose_jars_are_there_is_not_asked_for_again(tmp_path: Path) -> None:
    (tmp_path / "a.jar").touch()
    (tmp_path / "b.jar").touch()
    known = remembered(tmp_path, "a.jar", "b.jar")
    assert broker_class_path(tmp_path) == known


@pytest.mark.jvm
@pytest.mark.usefixtures("no_network")
def test_a_missing_jar_is_fetched_and_a_failure_is_reported_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "a.jar").touch()
    remembered(tmp_path, "a.jar", "gone.jar")
    with pytest.raises(TransientError, match=r"cannot be fetched: .*(refused|not found|[Ss]erver access)") as caught:
        broker_class_path(tmp_path)
    assert "\n" not in str(caught.value)


@pytest.mark.jvm
def test_the_class_path_has_the_broker_a_binding_for_its_log_and_no_sources() -> None:
    names = [path.rpartition("/")[2] for path in broker_class_path().split(os.pathsep)]
    assert {f"kafka_2.13-{KAFKA_VERSION}.jar", f"slf4j-simple-{SLF4J_VERSION}.jar"} <= set(names)
    assert not [name for name in names if "sources" in name or "javadoc" in name]
