"""The schema of the YAML file."""

from __future__ import annotations

from jsonschema import Draft202012Validator

from cdc_pipeline.component.component import CdcPipeline
from cdc_pipeline.component.yaml_model import YamlModel


class _Part(YamlModel):
    size: int = 1
    """How large it is,
    in bytes."""
    name: str = ""


def test_schema_describes_a_field_by_the_text_below_it() -> None:
    fields = _Part.model().model_json_schema()["properties"]
    assert fields["size"]["description"] == "How large it is, in bytes."
    assert "description" not in fields["name"]


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
