"""Writes docs/pipeline.md, a pipeline's file field by field, from the models that read it (`make docs`)."""

from __future__ import annotations

import re
import types
from pathlib import Path
from typing import Any, Literal, Union, get_args, get_origin

from cdc_pipeline.component.component import CdcPipeline, DdlPolicyRules
from cdc_pipeline.component.computed_field import ComputedColumn
from cdc_pipeline.component.run_fields import FreshnessSettings, SensorSettings
from cdc_pipeline.component.source_field import CaptureFilesSource, KafkaSource, StartAt, TicdcStorageSource
from cdc_pipeline.component.table_fields import RouteRule

_PAGE = Path(__file__).parents[1] / "docs" / "pipeline.md"
_HEAD = """# A pipeline's file, field by field

<!-- made by scripts/pipeline_fields.py from the models that read the file; a test holds it to them -->

`cdc_pipeline/defs/NAME/defs.yaml`, made by `dg scaffold defs cdc_pipeline.CdcPipeline NAME` or by hand:

```yaml
type: cdc_pipeline.CdcPipeline
attributes:
  name: orders
  lake: "{{ env.LAKE }}"
  source: {type: capture_files, path: my-captures}
  owners: [team:data]
  freshness: {warn_minutes: 10, fail_minutes: 60}
```

Any value may come from the environment, as `lake` does. A wrong field fails at load with its path, the value and what was
expected; `dg check defs` points to its line.
"""
# title → model, in the order of the page
_SECTIONS: dict[str, Any] = {
    "attributes": CdcPipeline,
    "source of type capture_files": CaptureFilesSource,
    "source of type kafka": KafkaSource,
    "source.start": StartAt,
    "source of type ticdc_storage": TicdcStorageSource,
    "routes, each": RouteRule,
    "ddl_policy": DdlPolicyRules,
    "computed, each column": ComputedColumn,
    "sensor": SensorSettings,
    "freshness": FreshnessSettings,
}
_MODELS = {model: title for title, model in _SECTIONS.items()}


def document() -> str:
    """The whole page."""
    return _HEAD + "".join(_section(title, model) for title, model in _SECTIONS.items())


def _section(title: str, model: Any) -> str:
    rows = [
        f"| `{name}` | {_type(field.annotation)} | {_default(field)} | {_text(field)} |"
        for name, field in _fields(model)
    ]
    about = " ".join((model.__doc__ or "").split("\n\n")[0].split())
    return f"\n## {title}\n\n{about}\n\n| field | type | default | what |\n|---|---|---|---|\n" + "\n".join(rows) + "\n"


def _fields(model: Any) -> list[tuple[str, Any]]:
    return list(model.model_fields.items())


def _default(field: Any) -> str:
    if field.is_required():
        return "required"
    value = field.get_default(call_default_factory=True)
    if type(value) in _MODELS:
        return "see below"
    return (
        "none"
        if value is None or value in ("", [], {}, (), frozenset())
        else f"`{str(value).lower() if isinstance(value, bool) else value}`"
    )


def _text(field: Any) -> str:
    return " ".join((field.description or "").split()).replace("|", "\\|")


def _type(annotation: Any) -> str:
    """A type in the words of YAML."""
    origin, inner = get_origin(annotation), get_args(annotation)
    if annotation in _MODELS:
        return "mapping, see below"
    if origin is Literal:
        return " or ".join(f"`{value}`" for value in inner)
    if origin in (Union, types.UnionType):
        words = [_type(part) for part in inner if part is not type(None)]
        return " or ".join(dict.fromkeys(words))
    if origin is list:
        return f"list of {_type(inner[0])}"
    if origin is dict:
        return f"mapping of {_type(inner[0])} to {_type(inner[1])}"
    if origin is not None and inner:
        return _type(inner[0])
    plain = {str: "text", int: "whole number", float: "number", bool: "true or false"}
    return plain.get(annotation, re.sub(r"Source$", "", getattr(annotation, "__name__", str(annotation))))


if __name__ == "__main__":
    _PAGE.write_text(document(), encoding="utf-8")
    print(f"wrote {_PAGE.name}")
