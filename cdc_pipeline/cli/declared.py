"""Finds the pipeline that a command is about: declared in a dg project, or given by options."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import dagster as dg
from dagster.components.resolved.errors import ResolutionException
from dotenv import dotenv_values
from pydantic import ValidationError

from cdc_pipeline.component.component import CdcPipeline
from cdc_pipeline.component.source_field import CaptureFilesSource
from cdc_pipeline.errors import DeclarationError
from cdc_pipeline.lake.lake import Lake
from cdc_pipeline.lake.paths import OWN_TABLES, LakePaths, is_for_delta_rs, is_local_path, stores_of
from cdc_pipeline.pipeline import Pipeline
from cdc_pipeline.spark.session import SparkLakehouse, own_spark

_OTHER_WAYS = "Name a project with --project, or a lake with --lake (to ingest: --captures and --lake)"
_OTHER_FORM = re.compile(r"\.str( at |$)")
_MODEL_NAME = re.compile(r"\.(tagged-union\[[^\]]*\]|constrained-str|\w+Model)(?=[. ]|$)")
_TAG_FUNCTION = re.compile(r" found using \w+\(\)")


@dataclass(frozen=True)
class DeclaredPipeline:
    """A pipeline with the definitions that contain its jobs."""

    component: CdcPipeline
    definitions: dg.Definitions

    @property
    def pipeline(self) -> Pipeline:
        return self.component.pipeline

    @property
    def spark(self) -> SparkLakehouse:
        """The resource of the pipeline. Raises DeclarationError if it is no SparkLakehouse."""
        name = self.pipeline.spark_key
        found = (self.definitions.resources or {}).get(name)
        if not isinstance(found, SparkLakehouse):
            raise DeclarationError(
                f"the project has no SparkLakehouse as resource {name!r}, which spark_resource names"
            )
        return found.process_config_and_initialize()


def capture_pipeline(captures: str, lake: str, name: str) -> DeclaredPipeline:
    """A pipeline of capture files, without a project. Raises DeclarationError if a value is not valid."""
    try:
        source = CaptureFilesSource(type="capture_files", path=captures)
        component = CdcPipeline(name=name, source=source, lake=lake)
    except ValueError as error:
        raise DeclarationError(load_error(error)) from None
    return DeclaredPipeline(component, component.build_defs())


def project_pipeline(project: Path, name: str | None) -> DeclaredPipeline:
    """The pipeline `name` of the dg project that contains the folder; None if the project has one only.

    Makes the project's folder the working directory, because its files have relative paths, and loads its `.env` into the
    environment. Raises DeclarationError if there is no project, no such pipeline, or a file of the project is wrong.
    """
    project = project.resolve()
    marks = ("pyproject.toml", "dg.toml")
    root = next((one for one in (project, *project.parents) if any((one / mark).is_file() for mark in marks)), None)
    if root is None:
        raise DeclarationError(f"{project} is not in a Dagster project. {_OTHER_WAYS}")
    os.chdir(root)
    # as `dg` does
    os.environ.update({name: value for name, value in dotenv_values(root / ".env").items() if value is not None})
    try:
        tree = dg.ComponentTree.for_project(project)
        components = {component.name: component for component in tree.get_all_components(of_type=CdcPipeline)}
        found = components.get(name) if name else next(iter(components.values()), None)
        if found is None or (name is None and len(components) > 1):
            raise DeclarationError(f"the project {tree.project_root} has {_instead_of(name, sorted(components))}")
        return DeclaredPipeline(found, tree.build_defs())
    except DeclarationError:
        raise
    except Exception as error:  # Dagster wraps errors of YAML files and of modules
        raise DeclarationError(f"the Dagster project of {project} cannot be loaded: {load_error(error)}") from None


def _instead_of(name: str | None, pipelines: list[str]) -> str:
    listed = ", ".join(pipelines)
    if name:
        return f"no pipeline {name!r}; its pipelines: {listed or 'none'}"
    return (
        f"several pipelines: {listed}. Give the name of one" if pipelines else "no pipeline (cdc_pipeline.CdcPipeline)"
    )


def lake_pipeline_name(lake: str) -> str:
    """The name of the only pipeline in a local lake. Raises DeclarationError if there is none or several."""
    if not is_local_path(lake):
        raise DeclarationError(f"the lake {lake} is no local folder: use --name")
    if not Path(lake).is_dir():
        raise DeclarationError(f"there is no folder {_place(lake)}, which --lake names")
    names = sorted(folder.parent.name for folder in Path(lake).glob("*/raw_topic_snapshot") if folder.is_dir())
    if len(names) != 1:
        raise DeclarationError(
            f"the lake {_place(lake)} has {len(names)} pipelines ({', '.join(names) or 'none'}): use --name"
        )
    return names[0]


def _place(lake: str) -> str:
    """The absolute path of a local lake."""
    return str(Path(lake).absolute()) if is_local_path(lake) else lake


def load_error(error: BaseException) -> str:
    """The first cause of an error in one line, without values: they may be secrets."""
    while (cause := error.__cause__) is not None:
        error = cause
    if isinstance(error, ValidationError):
        return _field_errors([(".".join(map(str, found["loc"])), found["msg"]) for found in error.errors()])
    first = str(error).strip().split("\n", 1)[0].strip()
    if isinstance(error, ResolutionException) and error.__context__ is not None:
        # Dagster adds the place, in the first line
        return f"{first}: {load_error(error.__context__)}"
    return first or type(error).__name__


def _field_errors(errors: list[tuple[str, str]]) -> str:
    """The pairs of field and message as one line, without pydantic's names of models and functions."""
    lines = []
    for field, message in errors:
        if len(errors) > 1 and _OTHER_FORM.search(field):
            continue  # Dagster accepts a template in place of a mapping; the errors of the mapping are meant
        place = _MODEL_NAME.sub("", field)
        lines.append(": ".join(filter(None, (place, _TAG_FUNCTION.sub("", message.removeprefix("Value error, "))))))
    return "; ".join(lines)


def readable_lake(paths: LakePaths, declared: DeclaredPipeline | None = None) -> Lake:
    """The lake, for `control_tables.read_rows` and what builds on it. Starts Spark only if the lake is not a local folder:
    that of the pipeline if it is declared.

    Raises DeclarationError if there is no pipeline of that name.
    """
    # the functions that read control tables of a local folder do not use the session
    spark: Any = None
    if not is_for_delta_rs(paths.home):
        spark = (own_spark(stores_of(paths.root)) if declared is None else declared.spark).session
    lake = Lake(spark, paths)
    if not any(lake.exists(table) for table in OWN_TABLES if spark is not None or is_for_delta_rs(paths.table(table))):
        raise DeclarationError(
            f"there is no pipeline {paths.pipeline!r} in the lake {_place(paths.root)}: run it first"
        )
    return lake
