"""The command `cdc-pipeline` on a lake that it filled itself."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NoReturn

import click
import dagster as dg
import pytest
from click.testing import CliRunner
from pydantic import ValidationError
from pyspark.sql import SparkSession

from cdc_pipeline.assets.follower import NEW_CODE
from cdc_pipeline.cli.declared import DeclaredPipeline, load_error, project_pipeline
from cdc_pipeline.cli.main import cli, main
from cdc_pipeline.cli.output import printable
from cdc_pipeline.cli.runs import FinishedRun, as_commands, progress_lines
from cdc_pipeline.component.component import CdcPipeline
from cdc_pipeline.component.source_field import CaptureFilesSource
from cdc_pipeline.errors import CdcError, DeclarationError, TerminalError, TransientError
from cdc_pipeline.lake.paths import LakePaths
from cdc_pipeline_tests.support.folders import folder
from cdc_pipeline_tests.support.lakes.stories import change, create, put, update
from cdc_pipeline_tests.support.messages import Topic, watermark, watermark_tso

_BROKEN = '{"id": 0, "database": "db"}'
_ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class _Filled:
    folder: Path

    @property
    def source(self) -> list[str]:
        return ["--captures", str(self.folder / "captures"), "--lake", str(self.folder / "lake")]

    @property
    def lake(self) -> list[str]:
        return ["--lake", str(self.folder / "lake")]


def _invoke(*arguments: str) -> str:
    """The output of the command. Raises its error."""
    found = CliRunner().invoke(cli, list(arguments), catch_exceptions=False, standalone_mode=False)
    if found.exception is not None:
        raise found.exception
    return found.output


def _send(place: Path, name: str, *messages: tuple[str, int] | str, until: int) -> None:
    topic = Topic("topic") if name == "1.jsonl" else Topic("other")
    for message in messages:
        topic.send(*((message,) if isinstance(message, str) else message))
    for partition in (0, 1):
        topic.send(watermark(until), partition)
    topic.write(place / "captures", name)


@pytest.fixture(scope="module")
def filled(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> _Filled:  # noqa: ARG001  # its session is used
    place = tmp_path_factory.mktemp("cli")
    _send(
        place,
        "1.jsonl",
        create("t", 1),
        put("t", 2, "1", "a"),
        update("t", 3, ("1", "a"), ("1", "b")),
        _BROKEN,
        until=9,
    )
    made = _Filled(place)
    output = _invoke("run", *made.source, "orders")
    assert "batch 1: 6 new records from 1 files" in output
    assert "warning: check no_dead_letters" in output
    assert "`cdc-pipeline release`" in output
    assert f"pipeline orders: cut 1, resolved TSO {watermark_tso(9)}" in output
    assert "db.t       1        2" in output
    return made


@pytest.mark.core
def test_a_run_without_new_records_says_so(filled: _Filled) -> None:
    output = _invoke("run", *filled.source, "orders")
    assert "no new records: the mirrors did not change" in output


def test_status_as_text_json_and_metrics(filled: _Filled, tmp_path: Path) -> None:
    text = _invoke("status", *filled.lake)
    assert text.startswith(f"pipeline orders: cut 1, resolved TSO {watermark_tso(9)} (")
    assert "dead letters: 1 of rule " in text
    found = json.loads(_invoke("status", *filled.lake, "--name", "orders", "--json"))
    assert (found["cut"], found["resolved_tso"], found["pending_changes"]) == (1, watermark_tso(9), 0)
    (mirror,) = found["mirrors"]
    assert (mirror["table"], mirror["rows"], mirror["columns"]) == ("db.t", 1, 2)
    file = tmp_path / "cdc.prom"
    _invoke("status", *filled.lake, "--openmetrics", str(file))
    metrics = file.read_text(encoding="utf-8")
    assert 'cdc_mirror_rows{pipeline="orders",table="db.t"} 1\n' in metrics
    assert metrics.endswith("# EOF\n")
    assert [path.name for path in tmp_path.iterdir()] == ["cdc.prom"]


def test_history_of_a_row_with_its_messages(filled: _Filled) -> None:
    changes = [line for line in _invoke("history", "db.t", "1", *filled.lake).splitlines() if "UPDATE" in line]
    assert len(changes) == 1
    assert changes[0].startswith("batch 1 topic/")
    of_another = _invoke("history", "db.t", "7", *filled.lake)
    assert "UPDATE" not in of_another
    assert "DDL CREATE TABLE" in of_another
    assert "no row change matches" in of_another
    last = _invoke("history", "db.t", *filled.lake, "--where", "v=b", "--last", "1", "--messages")
    assert "after  {'id': '1', 'v': 'b'}" in last
    assert 'message {"id"' in last
    with pytest.raises(DeclarationError, match=r"nothing of db\.tt 1\. Similar tables: db\.t$"):
        _invoke("history", "db.tt", "1", *filled.lake)


def test_dead_letters(filled: _Filled) -> None:
    assert "topic/0@" in _invoke("letters", *filled.lake)
    (letter,) = json.loads(_invoke("letters", *filled.lake, "--json"))
    assert letter["payload"] == _BROKEN
    assert _invoke("letters", *filled.lake, "--rule", "other").strip() == "no dead letters"


def test_rebuild_of_an_intact_lake_changes_nothing(filled: _Filled) -> None:
    before = _invoke("status", *filled.lake, "--json")
    _invoke("rebuild", *filled.source, "orders", "--tables", "db.t")
    after = json.loads(_invoke("status", *filled.lake, "--json"))
    assert after["mirrors"] == json.loads(before)["mirrors"]


def test_doctor_finds_everything_in_order(filled: _Filled) -> None:
    output = _invoke("doctor", *filled.source, "orders")
    assert "FAIL" not in output
    for check in ("versions", "Java", "source", "lake", "Spark and jars", "lake format"):
        assert f"ok   {check}: " in output


def test_a_run_that_fails_has_an_error(spark: SparkSession, tmp_path: Path) -> None:  # noqa: ARG001  # its session is used
    folder(tmp_path / "captures", {"a.jsonl": b"no record\n"})
    with pytest.raises(TerminalError, match="not a complete Kafka record"):
        _invoke("run", *_Filled(tmp_path).source)


# ---- without Spark


def test_doctor_names_a_remedy_for_each_failure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "nowhere"))
    (tmp_path / "file").write_text("")
    arguments = [
        "doctor",
        "--no-spark",
        "--captures",
        str(tmp_path / "none"),
        "--lake",
        str(tmp_path / "file" / "lake"),
    ]
    found = CliRunner().invoke(cli, arguments)
    assert found.exit_code == 1
    failed = [line.split(":")[0] for line in found.output.splitlines() if line.startswith("FAIL")]
    assert failed == ["FAIL Java", "FAIL source", "FAIL lake"]
    assert "Install OpenJDK 17 or 21" in found.output


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["run", "--captures", "x"], "--captures needs --lake"),
        (["run", "--lake", "x"], "--lake needs --captures"),
        (["run", "--captures", "x", "--lake", "l", "1st"], "'1st' is not a pipeline name"),
        (["run", "--project", "{root}", "unknown"], "has no pipeline 'unknown'; its pipelines: shop"),
        (["run", "--project", "{empty}"], "is not in a Dagster project. Name a project with --project"),
        (["status", "--lake", "{empty}"], "has 0 pipelines"),
        (["status", "--lake", "nolake"], "there is no folder {here}/nolake, which --lake names"),
        (
            ["status", "--lake", "nolake", "--name", "p"],
            "there is no pipeline 'p' in the lake {here}/nolake: run it first",
        ),
        (["status", "--lake", "s3://bucket/lake"], "is no local folder: use --name"),
        (["status", "--lake", "{empty}", "--name", "p"], "there is no pipeline 'p' in the lake"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else None,
)
@pytest.mark.filterwarnings(
    "ignore::dagster.BetaWarning",
    "ignore::dagster.PreviewWarning",
    # Dagster parses YAML with a deprecated call of pydantic
    "ignore:`parse_obj_as` is deprecated:pydantic.warnings.PydanticDeprecatedSince20",
)
def test_what_is_wrong_with_a_command(
    arguments: list[str], expected: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    places = {"{root}": str(_ROOT), "{empty}": str(tmp_path)}
    with pytest.raises(CdcError) as raised:
        _invoke(*(places.get(argument, argument) for argument in arguments))
    assert expected.replace("{here}", str(tmp_path)) in str(raised.value)


_DEFS = """\
type: cdc_pipeline.CdcPipeline
attributes: {name: %s, lake: "{{ env.CDC_DOTENV_LAKE }}", source: {type: capture_files, path: captures}}
"""


@pytest.mark.filterwarnings(
    "ignore::dagster.BetaWarning",
    "ignore::dagster.PreviewWarning",
    "ignore:`parse_obj_as` is deprecated:pydantic.warnings.PydanticDeprecatedSince20",
)
def test_a_project_with_its_env_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`dg` loads it, too. With a second pipeline, the error lists both."""
    monkeypatch.chdir(tmp_path)  # restored after the test
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("CDC_DOTENV_LAKE", "before")  # restored after the test
    (tmp_path / "pyproject.toml").write_text('[tool.dg.project]\nroot_module = "dotenv_project"\n', encoding="utf-8")
    (tmp_path / ".env").write_text("CDC_DOTENV_LAKE=/from/the/file\n", encoding="utf-8")
    first = tmp_path / "dotenv_project" / "defs" / "first"
    first.mkdir(parents=True)
    for package in (first.parents[1], first.parent):
        (package / "__init__.py").touch()
    (first / "defs.yaml").write_text(_DEFS % "first", encoding="utf-8")
    monkeypatch.chdir(first)
    assert project_pipeline(Path(), None).pipeline.lake == "/from/the/file"
    # a relative lake or source of the file is below the project's folder
    assert Path.cwd() == tmp_path
    second = first.with_name("second")
    second.mkdir()
    (second / "defs.yaml").write_text(_DEFS % "second", encoding="utf-8")
    with pytest.raises(DeclarationError, match=r"has several pipelines: first, second\. Give the name of one"):
        project_pipeline(tmp_path, None)
    assert project_pipeline(tmp_path, "second").pipeline.name == "second"


_FILE = "name: p\nlake: l\nsource: {type: kafka, bootstrap_servers: 'b:9092', topics: [t]}\n"


@pytest.mark.parametrize(
    ("wrong", "expected"),
    [
        (("b:9092", "{{ env.CDC_NONE }}"), ": bootstrap_servers: the environment variable CDC_NONE is not set"),
        ((", topics: [t]", ""), ": either topics or topic_pattern is expected"),
        (("topics:", "topic:"), "source.kafka.topic at <string>:3: Extra inputs are not permitted"),
        (
            ("kafka", "kafak"),
            "source at <string>:3: Input tag 'kafak' does not match any of the expected tags: 'capture_files', 'kafka', "
            "'ticdc_storage'",
        ),
        (("name: p", "name: 1p"), "name: '1p' is not a pipeline name: a letter, then letters, digits and underscores"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
@pytest.mark.filterwarnings("ignore:`parse_obj_as` is deprecated:pydantic.warnings.PydanticDeprecatedSince20")
def test_the_error_of_a_file_has_its_reason_without_values(wrong: tuple[str, str], expected: str) -> None:
    with pytest.raises(Exception) as raised:  # noqa: PT011  # Dagster's and pydantic's kinds
        CdcPipeline.resolve_from_yaml(_FILE.replace(*wrong))
    found = load_error(raised.value)
    assert expected in found
    assert "input_value" not in found
    assert "\n" not in found


def test_the_entry_point_prints_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    def run(*arguments: str) -> tuple[Any, str]:
        monkeypatch.setattr(sys, "argv", ["cdc-pipeline", *arguments])
        with pytest.raises(SystemExit) as raised:
            main()
        return raised.value.code, capsys.readouterr().err

    code, errors = run("status", "--lake", str(tmp_path))
    assert (code, errors.count("\n")) == (1, 1)
    assert errors.startswith("error: the lake ")
    assert run("nonsense")[0] == 2


def test_following_goes_on_until_it_is_interrupted(monkeypatch: pytest.MonkeyPatch) -> None:
    """A run that ends by a limit is followed by the next one. An interrupted one is no failure with an error."""
    runs = [SimpleNamespace(was_interrupted=False, result=SimpleNamespace(success=True), warnings=[], end="")] * 2
    runs.append(SimpleNamespace(was_interrupted=True))
    jobs: list[str] = []

    def run_job(_: object, job: str) -> object:
        jobs.append(job)
        return runs[len(jobs) - 1]

    monkeypatch.setattr("cdc_pipeline.cli.main.run_job", run_job)
    with pytest.raises(click.Abort):
        _invoke("follow", "--captures", "x", "--lake", "l")
    assert jobs == ["follow"] * 3


@pytest.mark.parametrize(
    ("arguments", "job", "config"),
    [
        (
            ["approve", "--tables", "a.b", "--tables", "c.*"],
            "approve_ddl",
            {"approve_statements": {"tables": ["a.b", "c.*"]}},
        ),
        (
            ["release", "--positions", "t/0@7", "--rules", "*", "--replacements", "/file", "--note", "ticket 7"],
            "release_dead_letters",
            {
                "release_letters": {
                    "positions": ["t/0@7"],
                    "rules": ["*"],
                    "tables": [],
                    "replacement_file": "/file",
                    "note": "ticket 7",
                }
            },
        ),
    ],
    ids=["approve", "release"],
)
def test_jobs_of_an_operator(
    monkeypatch: pytest.MonkeyPatch, arguments: list[str], job: str, config: dict[str, Any]
) -> None:
    """Without a Dagster project. The configuration is that of the job."""
    started: list[tuple[str, dict[str, Any]]] = []

    def execute(declared: DeclaredPipeline, name: str, given: dict[str, Any]) -> object:
        validated = dg.validate_run_config(
            declared.definitions.resolve_job_def(f"p_{name}"),
            {"ops": {f"p_{op}": {"config": fields} for op, fields in given.items()}},
        )
        assert validated
        started.append((name, given))
        counts = {name: dg.MetadataValue.int(2) for name in ("released", "not_released")}
        return SimpleNamespace(was_interrupted=False, result=SimpleNamespace(success=True), warnings=[], outputs=counts)

    monkeypatch.setattr("cdc_pipeline.cli.main.run_job", execute)
    output = _invoke(*arguments, "--captures", "x", "--lake", "l", "p")
    assert started == [(job, config)]
    assert output == ("• released: 2, not released: 2\n" if job == "release_dead_letters" else "")


def test_approving_and_releasing_without_a_project(spark: SparkSession, tmp_path: Path) -> None:  # noqa: ARG001
    """On a lake with a held table and a dead letter. `status` and the errors say what to run."""
    whole, partition = put("u", 5, "3", "c")
    messages = [put("t", 2, "1", "a"), change("TRUNCATE TABLE t", 3), put("t", 4, "2", "b"), (whole[:-9], partition)]
    _send(tmp_path, "1.jsonl", create("t", 1), create("u", 1), *messages, until=9)
    made = _Filled(tmp_path)
    source = CaptureFilesSource(type="capture_files", path=str(tmp_path / "captures"))
    holding = CdcPipeline(name="orders", source=source, lake=str(tmp_path / "lake"), ddl_policy="hold")  # type: ignore[arg-type]
    with dg.DagsterInstance.ephemeral() as instance:
        assert holding.build_defs().resolve_job_def("orders_ingest").execute_in_process(instance=instance).success

    def rows() -> dict[str, int]:
        found = json.loads(_invoke("status", *made.lake, "--json"))
        return {mirror["table"]: mirror["rows"] for mirror in found["mirrors"]}

    assert "Lost by it: all 1 rows of db.t. `cdc-pipeline approve --tables db.t`" in _invoke("status", *made.lake)
    with pytest.raises(TerminalError, match=r"tables \['db.u'\] match no held table; held: db.t"):
        _invoke("approve", *made.source, "orders", "--tables", "db.u")
    _invoke("approve", *made.source, "orders", "--tables", "db.t")
    assert "held: " not in _invoke("status", *made.lake)
    assert rows() == {"db.t": 1, "db.u": 0}
    (letter,) = json.loads(_invoke("letters", *made.lake, "--json"))
    with pytest.raises(TerminalError, match="none of the selected dead letters was released"):
        _invoke("release", *made.source, "orders", "--rules", "*")
    repaired = tmp_path / "repaired.jsonl"
    repaired.write_text(json.dumps({**letter, "payload": whole}) + "\n", encoding="utf-8")
    output = _invoke("release", *made.source, "orders", "--replacements", str(repaired), "--note", "ticket 7")
    assert output.endswith("• released: 1, not released: 0\n")
    assert rows() == {"db.t": 1, "db.u": 1}
    assert _invoke("letters", *made.lake).strip() == "no dead letters"


def test_advice_names_commands_in_place_of_jobs() -> None:
    advice = "Run captures_release_dead_letters, or my_own_approve_ddl. orders_verify stays"
    assert as_commands(advice) == "Run `cdc-pipeline release`, or `cdc-pipeline approve`. orders_verify stays"


def test_following_starts_again_for_new_code(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The process has the old modules and the old declaration."""

    @dg.op(out=dg.Out(dg.Nothing))
    def follow_source() -> dg.Output[None]:
        return dg.Output(None, metadata={"batches": 1, "end": NEW_CODE})

    @dg.job
    def follow() -> None:
        follow_source()

    started: list[tuple[str, list[str]]] = []

    def execute(path: str, arguments: list[str]) -> NoReturn:
        started.append((path, arguments))
        raise click.Abort

    finished = FinishedRun(follow.execute_in_process(), {}, ())
    monkeypatch.setattr("cdc_pipeline.cli.main.run_job", lambda *_: finished)
    monkeypatch.setattr(sys, "orig_argv", ["python", "-X", "dev", "cdc-pipeline", "follow"])
    monkeypatch.setattr(os, "execv", execute)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(click.Abort):
        _invoke("follow", "--captures", "x", "--lake", "l")
    assert started == [(sys.executable, [sys.executable, "-X", "dev", "cdc-pipeline", "follow"])]


def test_a_retried_step_has_its_reason(capsys: pytest.CaptureFixture[str]) -> None:
    """And the lines have neither the class of the error nor Dagster's message about the next step."""

    @dg.op
    def first() -> int:
        error = TransientError("the broker does not answer")
        raise dg.RetryRequested(max_retries=1, seconds_to_wait=0) from error

    @dg.op
    def second(number: int) -> None: ...

    @dg.job(logger_defs={"console": progress_lines})
    def ingest() -> None:
        second(first())

    loggers = {"loggers": {"console": {"config": {}}}}
    with dg.DagsterInstance.ephemeral() as instance:
        result = ingest.execute_in_process(instance=instance, run_config=loggers, raise_on_error=False)
    assert capsys.readouterr().out == "  failed, next attempt in 0 s: the broker does not answer\n"
    assert FinishedRun(result, {}, ()).failures == ["the broker does not answer"]


def test_errors_of_a_declaration_have_no_values(tmp_path: Path) -> None:
    for error in (
        DeclarationError("outer"),
        ValueError("first line\n  3 | password: secret\nTraceback"),
    ):
        assert load_error(error) in ("outer", "first line")
    with pytest.raises(ValidationError) as raised:
        CdcPipeline(name="a b", source="secret", lake=str(tmp_path))  # type: ignore[arg-type]
    text = load_error(raised.value)
    assert "is not a pipeline name" in text
    assert "secret" not in text


def test_control_characters_are_not_printed() -> None:
    assert printable("a\x1b]0;x\x07\nb\r") == "a\ufffd]0;x\ufffd\nb\ufffd"


def test_versions() -> None:
    assert [line.split()[0] for line in _invoke("version").splitlines()][:3] == ["python", "cdc_pipeline", "dagster"]


def test_paths_of_the_lake_option(tmp_path: Path) -> None:
    (tmp_path / "one" / "raw_topic_snapshot").mkdir(parents=True)
    with pytest.raises(DeclarationError, match="no pipeline 'one'"):  # the folder is not a table
        _invoke("status", "--lake", str(tmp_path))
    assert LakePaths(str(tmp_path), "one").home == str(tmp_path / "one")
