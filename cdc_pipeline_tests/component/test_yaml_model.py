"""Deprecated fields."""

from __future__ import annotations

import warnings
from typing import Annotated

import dagster as dg
import pytest
from jsonschema import Draft202012Validator
from pydantic import ConfigDict, Field

from cdc_pipeline.component.component import CdcPipeline
from cdc_pipeline.component.yaml_model import YamlModel


class _Part(YamlModel):
    model_config = ConfigDict(extra="forbid")

    size: Annotated[int, Field(description="How large.")] = 1
    length: Annotated[int, Field(description="How long.", deprecated="write size, which is the same")] = 1


class _Whole(YamlModel):
    model_config = ConfigDict(extra="forbid")

    part: Annotated[_Part, Field(description="A part of it.")] = _Part()


def _resolved(part: dict[str, int]) -> _Whole:
    """Resolved like a file in Dagster."""
    with warnings.catch_warnings():
        # pydantic's warning for reading a deprecated field, as Dagster does
        warnings.filterwarnings("ignore", "write size", DeprecationWarning)
        loaded: _Whole = _Whole.resolve_from_model(dg.ResolutionContext.default(), _Whole.model()(part=part))
    return loaded


def test_deprecated_field_works_with_a_warning() -> None:
    with pytest.warns(FutureWarning, match="^length is deprecated: write size, which is the same$"):
        found = _resolved({"length": 3})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        assert found.part.length == 3


def test_no_warning_without_deprecated_fields() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert _resolved({"size": 3}).part.size == 3


def test_schema_marks_deprecated_fields() -> None:
    assert _Part.model().model_json_schema()["properties"]["length"]["deprecated"] is True


def test_schema_reports_errors_inside_a_mapping() -> None:
    schema = CdcPipeline.model().model_json_schema()
    given = {"name": "a", "lake": "l", "source": {"type": "capture_files", "path": "c"}}

    def errors(notify: object) -> list[str]:
        found = Draft202012Validator(schema).iter_errors({**given, "notify": notify})
        return [f"{'.'.join(map(str, error.path))}: {error.message}" for error in found]

    assert errors({}) == errors("{{ env.NOTIFY }}") == errors({"urls": ["x"]}) == []
    unknown, expected = sorted(errors({"urls": ["x"], "evnts": []}))
    assert expected.startswith("notify: Additional properties are not allowed ('evnts'")
    assert unknown.startswith("notify: 'evnts' is not one of ['urls', ")
    assert errors({"ui_url": 5}) == ["notify.ui_url: 5 is not of type 'string'"]
    assert errors({"urls": [5]}) == ["notify.urls: [5] is not valid under any of the given schemas"]


def test_schema_names_the_values_of_a_policy() -> None:
    schema = CdcPipeline.model().model_json_schema()
    given = {"name": "a", "lake": "l", "source": {"type": "capture_files", "path": "c"}}
    policy = {"tables": {"crm.people": "wait"}}
    (error,) = Draft202012Validator(schema).iter_errors({**given, "ddl_policy": policy})
    assert [*error.path] == ["ddl_policy", "tables", "crm.people"]
    assert error.message == "'wait' is not one of ['apply', 'keep', 'hold']"
