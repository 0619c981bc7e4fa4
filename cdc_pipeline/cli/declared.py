"""Finds the pipeline that a command is about: declared in a dg project, or given by options."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import dagster as dg
from pydantic import ValidationError

from cdc_pipeline.component.component import CdcPipeline
from cdc_pipeline.component.source_field import CaptureFilesSource
from cdc_pipeline.errors import DeclarationError
from cdc_pipeline.lake.paths import is_local_path
from cdc_pipeline.spark.session import SparkLakehouse

if TYPE_CHECKING:
    from cdc_pipeline.pipeline import Pipeline

_OTHER_WAYS = "Name a project with --project, or give --captures and --lake"


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
        name = self.pipeline.spark_resource
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

    Raises DeclarationError if there is no project, no such pipeline, or a file of the project is wrong.
    """
    try:
        tree = dg.ComponentTree.for_project(project)
        components = {component.name: component for component in tree.get_all_components(of_type=CdcPipeline)}
        found = components.get(name) if name else next(iter(components.values()), None)
        if found is None or (name is None and len(components) > 1):
            listed = ", ".join(sorted(components)) or "none"
            wanted = f"no pipeline {name!r}" if name else "not exactly one pipeline"
            raise DeclarationError(f"the project {tree.project_root} has {wanted}; its pipelines: {listed}")
        return DeclaredPipeline(found, tree.build_defs())
    except DeclarationError:
        raise
    except Exception as error:  # Dagster wraps errors of YAML files and of modules
        reason = load_error(error)
        raise DeclarationError(f"{project} has no project that can be loaded: {reason}. {_OTHER_WAYS}") from None


def lake_pipeline_name(lake: str) -> str:
    """The name of the only pipeline in a local lake. Raises DeclarationError if there is none or several."""
    if not is_local_path(lake):
        raise DeclarationError(f"the lake {lake} is no local folder: use --name")
    names = sorted(folder.parent.name for folder in Path(lake).glob("*/raw_topic_snapshot") if folder.is_dir())
    if len(names) != 1:
        raise DeclarationError(f"the lake {lake} has {len(names)} pipelines ({', '.join(names) or 'none'}): use --name")
    return names[0]


def load_error(error: BaseException) -> str:
    """The first cause of an error in one line, without values: they may be secrets."""
    while (cause := error.__cause__) is not None:
        error = cause
    if isinstance(error, ValidationError):
        return "; ".join(
            f"{'.'.join(map(str, found['loc']))}: {found['msg']}" for found in error.errors(include_input=False)
        )
    return str(error).strip().split("\n", 1)[0].strip() or type(error).__name__
