"""Finds the pipeline that a command is about: declared in a dg project, or given by options."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import dagster as dg

from cdc_pipeline.component.component import CdcPipeline
from cdc_pipeline.component.source_field import CaptureFilesSource
from cdc_pipeline.errors import DeclarationError

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


def capture_pipeline(captures: str, lake: str, name: str) -> DeclaredPipeline:
    """A pipeline of capture files, without a project. Raises DeclarationError if a value is not valid."""
    try:
        source = CaptureFilesSource(type="capture_files", path=captures)
        component = CdcPipeline(name=name, source=source, lake=lake)
    except ValueError as error:
        raise DeclarationError(str(error)) from error
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
        raise DeclarationError(
            f"{project} has no project that can be loaded: {innermost(error)}. {_OTHER_WAYS}"
        ) from error


def lake_pipeline_name(lake: str) -> str:
    """The name of the only pipeline in a local lake. Raises DeclarationError if there is none or several."""
    names = sorted(folder.parent.name for folder in Path(lake).glob("*/raw_topic_snapshot") if folder.is_dir())
    if len(names) != 1:
        raise DeclarationError(f"the lake {lake} has {len(names)} pipelines ({', '.join(names) or 'none'}): use --name")
    return names[0]


def innermost(error: BaseException) -> BaseException:
    """The first cause of an error."""
    while (cause := error.__cause__) is not None:
        error = cause
    return error


def json_default(value: Any) -> str:
    """Text of values that JSON lacks, such as times and bytes."""
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)
