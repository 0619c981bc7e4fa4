"""The files of deploy/ fit the package, Dagster, each other, and docs/deployment.md. Without Docker, Kubernetes and Java."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from importlib import import_module
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import click
import dagster as dg
import pytest
import yaml
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

from cdc_pipeline.spark.java import SUPPORTED_MAJORS
from cdc_pipeline_tests.support.servers.postgres import postgres_programs, running_postgres
from cdc_pipeline_tests.support.toml import read_toml

ROOT = Path(__file__).parents[1]
DEPLOY = ROOT / "deploy"
DOCKERFILE = (DEPLOY / "Dockerfile").read_text(encoding="utf-8")
UNITS = sorted((DEPLOY / "systemd").glob("*.service"))
IMAGE_HOME = "/opt/dagster/dagster_home"
UNIT_HOME = "/var/lib/cdc_pipeline/dagster"
VENV_BIN = "/opt/cdc_pipeline/.venv/bin/"
_PIN = re.compile(r"^([A-Za-z0-9._-]+)(?:\[[^]]*\])?==(\S+)", re.MULTILINE)
_DAGSTER_SERVICES = ("code-server", "webserver", "daemon")


def _yaml(path: Path) -> Any:
    return yaml.safe_load(path.read_text(encoding="utf-8"))


def _docs() -> str:
    return (ROOT / "docs" / "deployment.md").read_text(encoding="utf-8")


def _project() -> Any:
    return read_toml(ROOT / "pyproject.toml")["project"]


def _from_environment(value: Any) -> set[str]:
    """The variables that a Dagster configuration reads: `{env: NAME}`."""
    if isinstance(value, list):
        return {name for item in value for name in _from_environment(item)}
    if not isinstance(value, dict):
        return set()
    if set(value) == {"env"}:
        return {value["env"]}
    return {name for item in value.values() for name in _from_environment(item)}


def _assigned(path: Path) -> dict[str, str]:
    """The variables of an environment file, also those in comments: name → value."""
    pairs = re.findall(r"^#?([A-Z_]+)=(.*)$", path.read_text(encoding="utf-8"), re.MULTILINE)
    return dict(pairs)


NEEDED = _from_environment(_yaml(DEPLOY / "dagster.yaml")) | _from_environment(_yaml(DEPLOY / "workspace.yaml"))


# --- the instance


def test_the_instance_differs_from_that_of_one_machine_in_its_storage() -> None:
    deployed, local = _yaml(DEPLOY / "dagster.yaml"), _yaml(ROOT / "dagster.yaml")
    storage = deployed.pop("storage")
    # starts of code servers by the webserver and the daemon; here they start none
    del local["code_servers"]
    assert deployed == local
    database = storage["postgres"]["postgres_db"]
    # without it SQLAlchemy 2.1 looks for psycopg, which dagster-postgres does not install
    assert database.pop("scheme") == "postgresql+psycopg2"
    assert len(_from_environment(database)) == len(database) == 5


def test_the_workspace_loads_the_same_location() -> None:
    (deployed,), (local,) = (_yaml(path / "workspace.yaml")["load_from"] for path in (DEPLOY, ROOT))
    assert deployed["grpc_server"]["location_name"] == local["python_module"]["location_name"]
    (pod,) = _yaml(DEPLOY / "helm-values.yaml")["dagster-user-deployments"]["deployments"]
    started = {where: command for where, command in _commands().items() if "code-server" in command}
    assert set(started) == {"image", "cdc-code-server.service", "helm"}
    for where, command in started.items():
        # the chart names the location after the deployment
        name = pod["name"] if where == "helm" else deployed["grpc_server"]["location_name"]
        assert command[command.index("-m") + 1] == local["python_module"]["module_name"]
        assert command[command.index("--location-name") + 1] == name
        assert int(command[command.index("-p") + 1]) == deployed["grpc_server"]["port"]


@pytest.fixture
def postgres_instance(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder with deploy/dagster.yaml, and the environment that leads it to a server that runs."""
    pytest.importorskip("dagster_postgres", reason="needs the extra `postgres`")
    programs = postgres_programs()
    if programs is None:
        pytest.skip("needs PostgreSQL's initdb, pg_ctl and postgres")
    shutil.copy(DEPLOY / "dagster.yaml", tmp_path)
    with running_postgres(programs) as server:
        for name, value in (
            ("HOST", server.host),
            ("PORT", str(server.port)),
            ("USERNAME", server.user),
            ("PASSWORD", server.password),
            ("DB", server.database),
        ):
            monkeypatch.setenv(f"DAGSTER_PG_{name}", value)
        yield tmp_path


def test_dagster_stores_runs_in_postgres(postgres_instance: Path) -> None:
    """An event of a run is read by another instance, as the webserver reads those of a run."""

    @dg.op
    def step() -> Any:
        yield dg.AssetMaterialization("mirror/shop/orders", metadata={"dagster/row_count": 42})
        yield dg.Output(None)

    @dg.job(tags={"cdc/pipeline": "shop"})
    def tiny() -> None:
        step()

    with dg.DagsterInstance.from_config(str(postgres_instance)) as instance:
        logger = {"loggers": {"console": {"config": {"log_level": "CRITICAL"}}}}
        run_id = tiny.execute_in_process(instance=instance, run_config=logger).run_id
    with dg.DagsterInstance.from_config(str(postgres_instance)) as instance:
        storages = (instance.run_storage, instance.event_log_storage, instance.schedule_storage)
        assert {type(storage).__module__.split(".")[0] for storage in storages} == {"dagster_postgres"}
        run = instance.get_run_by_id(run_id)
        assert run is not None
        assert (run.status, run.tags["cdc/pipeline"]) == (dg.DagsterRunStatus.SUCCESS, "shop")
        (event,) = instance.all_logs(run_id, of_type=dg.DagsterEventType.ASSET_MATERIALIZATION)
        assert event.asset_materialization is not None
        assert event.asset_materialization.metadata["dagster/row_count"].value == 42
        (limit,) = instance.get_concurrency_config().run_queue_config.tag_concurrency_limits  # type: ignore[union-attr]
        assert (limit["key"], limit["limit"]) == ("cdc/pipeline", 1)


# --- commands


def _commands() -> dict[str, list[str]]:
    """Every command of deploy/: where it is → the command, beginning with the name of a console script."""
    found = {}
    for name, service in _yaml(DEPLOY / "compose.yaml")["services"].items():
        if name != "postgres" and "command" in service:
            found[f"compose {name}"] = service["command"]
        test = service.get("healthcheck", {}).get("test", [])
        if test[1:] and test[1].startswith("dagster"):
            found[f"compose {name} healthcheck"] = test[1:]
    command, healthcheck = re.findall(r"^(?:\s+)?CMD (\[.*\])$", DOCKERFILE, re.MULTILINE)
    found |= {"image": json.loads(command), "image healthcheck": json.loads(healthcheck)}
    for unit in UNITS:
        (text,) = re.findall(r"^ExecStart=(.*)$", unit.read_text(encoding="utf-8"), re.MULTILINE)
        found[unit.name] = shlex.split(text.removeprefix(VENV_BIN))
    (deployment,) = _yaml(DEPLOY / "helm-values.yaml")["dagster-user-deployments"]["deployments"]
    start = ["dagster", "code-server", "start", "-h", "0.0.0.0", "-p", str(deployment["port"])]
    found["helm"] = start + deployment["codeServerArgs"]
    return found


@pytest.mark.parametrize("command", [pytest.param(command, id=where) for where, command in _commands().items()])
def test_dagster_accepts_the_command(command: list[str]) -> None:
    (script,) = entry_points(group="console_scripts", name=command[0])
    # its function runs the group `cli` of the same module
    cli: click.Command = import_module(script.module).cli
    arguments = [text.replace(IMAGE_HOME, str(DEPLOY)).replace(UNIT_HOME, str(DEPLOY)) for text in command[1:]]
    context = click.Context(cli)
    while isinstance(cli, click.Group):
        name, cli, arguments = cli.resolve_command(context, arguments)  # type: ignore[assignment]
        context = click.Context(cli, parent=context, info_name=name)
    with cli.make_context(cli.name, arguments) as parsed:
        assert parsed.args == []


# --- containers


def _compose() -> Any:
    return _yaml(DEPLOY / "compose.yaml")


def _sources(text: str) -> set[str]:
    """The files of the build context that the Dockerfile copies."""
    copies = re.findall(r"^COPY (?!--from)(.*) \S+$", text, re.MULTILINE)
    return {source for copy in copies for source in copy.split()}


def test_the_image_has_supported_versions() -> None:
    (python,) = re.findall(r"^ARG PYTHON_IMAGE=python:(\d+\.\d+)-slim-bookworm$", DOCKERFILE, re.MULTILINE)
    assert python in SpecifierSet(_project()["requires-python"])
    (java,) = re.findall(r"openjdk-(\d+)-jre-headless", DOCKERFILE)
    assert int(java) in SUPPORTED_MAJORS
    assert f"Python {python}, Java {java}" in _docs()


def test_the_build_context_has_what_the_image_copies_and_nothing_else() -> None:
    lines = (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
    allowed = {line.removeprefix("!") for line in lines if line.startswith("!")}
    assert "*" in lines
    assert _sources(DOCKERFILE) == allowed
    assert [path for path in allowed if not (ROOT / path).exists()] == []


def test_the_image_runs_as_a_user_with_fixed_ids() -> None:
    (user,) = re.findall(r"^USER (\d+):\1$", DOCKERFILE, re.MULTILINE)
    assert f"--gid {user} cdc" in DOCKERFILE
    assert f"--uid {user} --gid {user}" in DOCKERFILE
    # nothing runs before the last USER that needs to be root at run time
    assert DOCKERFILE.index("USER ") < DOCKERFILE.index("ENTRYPOINT")
    security = _yaml(DEPLOY / "helm-values.yaml")["dagsterDaemon"]["podSecurityContext"]
    assert {security[key] for key in ("runAsUser", "runAsGroup", "fsGroup")} == {int(user)}


def test_services_use_the_image_and_the_volumes_that_exist() -> None:
    compose = _compose()
    services = compose["services"]
    assert set(services) == {"postgres", *_DAGSTER_SERVICES}
    assert {services[name]["image"] for name in _DAGSTER_SERVICES} == {"${CDC_IMAGE:-cdc_pipeline}"}
    build = services["code-server"]["build"]
    assert (DEPLOY / build["context"] / build["dockerfile"]).resolve() == DEPLOY / "Dockerfile"
    named: dict[str, set[str]] = {}
    for service, settings in services.items():
        for volume in settings.get("volumes", []):
            source, target = volume.split(":")[:2]
            if source.startswith("."):
                assert (DEPLOY / source).exists(), source
            else:
                named.setdefault(source, set()).add(f"{service}:{target}")
    assert set(named) == set(compose["volumes"])
    # runs write them in the code server's container
    assert named["lake"] == {"code-server:/lake"}
    assert named["logs"] == {f"{name}:{IMAGE_HOME}/storage" for name in ("code-server", "webserver")}
    folders = re.search(r"install -d -o cdc -g cdc (.*)$", DOCKERFILE, re.MULTILINE)
    assert folders is not None
    assert {"/lake", f"{IMAGE_HOME}/storage"} <= set(folders[1].split()), "Docker gives a new volume the folder's owner"


def test_dependencies_of_services_have_health_checks() -> None:
    services = _compose()["services"]
    for name in ("webserver", "daemon"):
        assert set(services[name]["depends_on"]) == {"postgres", "code-server"}
    for needed in ("postgres", "webserver", "daemon"):
        assert "healthcheck" in services[needed]
    # the code server's is in the image
    assert "HEALTHCHECK" in DOCKERFILE
    assert "healthcheck" not in services["code-server"]
    assert "command" not in services["code-server"]


# --- environment


def test_every_part_has_the_variables_of_the_instance() -> None:
    services = _compose()["services"]
    for name in _DAGSTER_SERVICES:
        assert set(services[name]["environment"]) >= NEEDED
    assert services["code-server"]["environment"]["DAGSTER_PG_HOST"] in services
    assert services["webserver"]["environment"]["CDC_CODE_SERVER_HOST"] in services
    assert set(_assigned(DEPLOY / "systemd" / "environment.example")) >= NEEDED | {"DAGSTER_HOME", "CDC_WEBSERVER"}


def test_each_variable_of_the_compose_file_is_in_its_example() -> None:
    text = (DEPLOY / "compose.yaml").read_text(encoding="utf-8")
    assert set(re.findall(r"\$\{([A-Z_]+)", text)) == set(_assigned(DEPLOY / "env.example"))


def test_each_variable_is_documented() -> None:
    rows = set(re.findall(r"^\| `([A-Z_]+)`", _docs(), re.MULTILINE))
    used = NEEDED | set(_assigned(DEPLOY / "env.example")) | set(_assigned(DEPLOY / "systemd" / "environment.example"))
    used |= set(_compose()["services"]["code-server"]["environment"])
    used |= {text.split("=")[0] for text in _launcher()["envVars"]}
    assert used == rows


def test_no_file_has_a_secret() -> None:
    for path in (DEPLOY / "env.example", DEPLOY / "systemd" / "environment.example"):
        secrets = {name: value for name, value in _assigned(path).items() if "PASSWORD" in name or "SECRET" in name}
        assert secrets == {"DAGSTER_PG_PASSWORD": ""}
    passwords = re.findall(r"password\w*: *(.*)$", (DEPLOY / "compose.yaml").read_text(), re.MULTILINE | re.IGNORECASE)
    assert set(passwords) == {"${DAGSTER_PG_PASSWORD:?set it in deploy/.env}"}
    assert "postgresqlPassword" not in (DEPLOY / "helm-values.yaml").read_text().replace(
        "generatePostgresqlPassword", ""
    )
    ignored = (ROOT / ".gitignore").read_text(encoding="utf-8").splitlines()
    assert {"/deploy/.env", "/deploy/pipelines.env"} <= set(ignored)


# --- packages


def test_extras_have_the_version_of_the_other_integrations() -> None:
    project = _project()
    (integration,) = (Requirement(text) for text in project["dependencies"] if text.startswith("dagster-pyspark"))
    for extra in ("k8s", "postgres"):
        (required,) = map(Requirement, project["optional-dependencies"][extra])
        assert (required.name, required.specifier) == (f"dagster-{extra}", integration.specifier)


def test_the_lock_of_the_image_has_the_pins_of_the_lock_and_no_tools() -> None:
    pins, all_pins = (
        dict(_PIN.findall(path.read_text())) for path in (DEPLOY / "requirements.lock", ROOT / "requirements.lock")
    )
    assert {name: pin for name, pin in pins.items() if all_pins.get(name, pin) != pin} == {}
    extras = _project()["optional-dependencies"]
    texts = [*_project()["dependencies"], *extras["kafka"], *extras["ui"]]
    wanted = [Requirement(text).name.lower() for text in texts]
    assert [name for name in [*wanted, "dagster-k8s", "dagster-postgres"] if name not in pins] == []
    assert {"pytest", "mypy", "ruff", "duckdb", "polars", "hypothesis"} & set(pins) == set()


# --- Kubernetes


def _launcher() -> Any:
    return _yaml(DEPLOY / "helm-values.yaml")["runLauncher"]["config"]["k8sRunLauncher"]


def test_the_chart_has_the_limits_of_the_instance() -> None:
    """The chart writes its own dagster.yaml from these values."""
    values, instance = _yaml(DEPLOY / "helm-values.yaml"), _yaml(ROOT / "dagster.yaml")
    runs, daemon = values["concurrency"]["runs"], values["dagsterDaemon"]
    assert values["concurrency"]["enabled"]
    assert {
        "max_concurrent_runs": runs["maxConcurrentRuns"],
        "tag_concurrency_limits": runs["tagConcurrencyLimits"],
    } == (instance["concurrency"]["runs"])
    monitoring = dict(daemon["runMonitoring"])
    del monitoring["pollIntervalSeconds"]
    for found, expected in (
        (monitoring, instance["run_monitoring"]),
        (daemon["runRetries"], instance["run_retries"]),
        (daemon["sensors"], instance["sensors"]),
        (values["telemetry"], instance["telemetry"]),
    ):
        assert {_snake(key): value for key, value in found.items()} == expected
    retention = values["retention"]
    assert {name: {"purge_after_days": retention[name]["purgeAfterDays"]} for name in ("sensor", "schedule")} == (
        instance["retention"]
    )
    assert values["additionalInstanceConfig"] == {name: instance[name] for name in ("nux", "freshness")}


def _snake(name: str) -> str:
    return re.sub(r"[A-Z]", lambda match: f"_{match[0].lower()}", name)


def test_the_chart_uses_the_driver_of_the_instance() -> None:
    database = _yaml(DEPLOY / "dagster.yaml")["storage"]["postgres"]["postgres_db"]
    assert _yaml(DEPLOY / "helm-values.yaml")["postgresql"]["postgresqlScheme"] == database["scheme"]


def test_the_chart_is_that_of_the_dagster_version() -> None:
    dagster = dict(_PIN.findall((ROOT / "requirements.lock").read_text(encoding="utf-8")))["dagster"]
    assert f"--version {dagster} " in (DEPLOY / "helm-values.yaml").read_text(encoding="utf-8")
    assert f"--version {dagster} " in _docs()


def test_runs_in_pods_have_memory_for_their_driver() -> None:
    launcher = _launcher()
    variables = dict(text.split("=", 1) for text in launcher["envVars"])
    heap = int(variables["CDC_DRIVER_MEMORY"].removesuffix("g"))
    requests, limits = launcher["resources"]["requests"], launcher["resources"]["limits"]
    assert requests["memory"] == limits["memory"] == f"{heap + 2}Gi"
    mounts = {mount["mountPath"]: mount["name"] for mount in launcher["volumeMounts"]}
    assert mounts == {variables["CDC_LAKE"]: "lake", variables["SPARK_LOCAL_DIRS"]: "scratch"}
    assert {volume["name"] for volume in launcher["volumes"]} == set(mounts.values())


def test_the_code_server_in_a_pod_has_the_environment_of_its_runs() -> None:
    (deployment,) = _yaml(DEPLOY / "helm-values.yaml")["dagster-user-deployments"]["deployments"]
    variables = {variable["name"]: variable["value"] for variable in deployment["env"]}
    runs = dict(text.split("=", 1) for text in _launcher()["envVars"])
    assert {name: runs.get(name, value) for name, value in variables.items()} == variables
    assert deployment["envSecrets"] == _launcher()["envSecrets"]
    assert deployment["volumes"][0] == _launcher()["volumes"][0]
    # merging them would give runs the code server's memory
    assert deployment["includeConfigInLaunchedRuns"] == {"enabled": False}


# --- systemd


def test_systemd_accepts_the_units(tmp_path: Path) -> None:
    verify = shutil.which("systemd-analyze")
    if verify is None:
        pytest.skip("needs systemd-analyze")
    binaries = tmp_path / "bin"
    binaries.mkdir()
    for name in ("dagster", "dagster-daemon", "dagster-webserver"):
        (binaries / name).touch(mode=0o755)
    copies = []
    for unit in UNITS:
        copy = tmp_path / unit.name
        copy.write_text(unit.read_text(encoding="utf-8").replace(VENV_BIN, f"{binaries}/"), encoding="utf-8")
        copies.append(str(copy))
    # --man=no: manual pages are not installed in containers
    done = subprocess.run([verify, "verify", "--man=no", *copies], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout + done.stderr) == (0, "")


def test_units_are_confined_and_restarted() -> None:
    assert [unit.stem for unit in UNITS] == [f"cdc-{name}" for name in ("code-server", "daemon", "webserver")]
    for unit in UNITS:
        settings = dict(re.findall(r"^([A-Za-z]+)=(.*)$", unit.read_text(encoding="utf-8"), re.MULTILINE))
        assert settings["User"] == "cdc"
        assert settings["Restart"] == "always"
        assert settings["EnvironmentFile"] == "/etc/cdc_pipeline/environment"
        assert (settings["NoNewPrivileges"], settings["ProtectSystem"], settings["CapabilityBoundingSet"]) == (
            "yes",
            "strict",
            "",
        )
        assert int(settings["MemoryMax"].removesuffix("G")) > 0
        example = _assigned(DEPLOY / "systemd" / "environment.example")
        writable = Path(settings["ReadWritePaths"])
        assert Path(example["DAGSTER_HOME"]).is_relative_to(writable)
    code_server = (DEPLOY / "systemd" / "cdc-code-server.service").read_text(encoding="utf-8")
    assert "ReadWritePaths=/var/lib/cdc_pipeline\n" in code_server
    assert Path(example["CDC_LAKE"]).is_relative_to("/var/lib/cdc_pipeline")
