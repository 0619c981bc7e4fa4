"""What `dg check` and the UI's page of components know of a pipeline's file: a schema in JSON, made of the models.

Dagster derives it, and loses two things on the way: what a field that has a default is for, and, inside a mapping such as
`source` or `sensor`, which field is wrong. Both are put back here.
"""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

import dagster as dg

if TYPE_CHECKING:
    from pydantic import BaseModel, GetJsonSchemaHandler
    from pydantic_core import CoreSchema

JsonSchema = dict[str, Any]
_TEXT: JsonSchema = {"type": "string"}


class Described(dg.Model, dg.Resolvable):
    """A part of a pipeline's file, whose schema has all descriptions and examples and says what is wrong where.

    A setting that goes, or has another name now, is a field with `deprecated`: the text that says what to write instead. It
    works until it is removed, and a file that has it is warned of it each time that it is loaded.
    """

    def model_post_init(self, context: Any, /) -> None:
        super().model_post_init(context)
        for name, field in type(self).model_fields.items():
            if name in self.model_fields_set and field.deprecation_message:
                # a FutureWarning is shown by default: it is for who writes the file, not for who writes the code
                warnings.warn(f"{name} is deprecated: {field.deprecation_message}", FutureWarning, stacklevel=2)

    @classmethod
    def model(cls) -> type[BaseModel]:
        found = super().model()
        if not callable(found.model_config.get("json_schema_extra")):
            _describe(found, cls)
        return found


def _describe(derived: type[BaseModel], declared: type[BaseModel]) -> None:
    for name, field in derived.model_fields.items():
        origin = declared.model_fields[name]
        field.description, field.examples, field.deprecated = origin.description, origin.examples, origin.deprecated
    kept = derived.model_config.get("json_schema_extra")
    added: JsonSchema = kept if isinstance(kept, dict) else {}

    def precise(schema: JsonSchema) -> None:
        schema.update(added)
        schema["properties"] = {name: _precise(field) for name, field in schema["properties"].items()}

    derived.model_config["json_schema_extra"] = precise
    derived.model_rebuild(force=True)


def _precise(field: JsonSchema) -> JsonSchema:
    """The schema of a field that is a mapping, or a text: of what is no text the mapping's own errors are told, where
    `anyOf` says of the whole that it is neither."""
    forms = field.get("anyOf", [])
    mappings = [form for form in forms if form != _TEXT]
    if len(mappings) != 1 or len(forms) != 2 or not {"$ref", "allOf"} & mappings[0].keys():
        return field
    rest = {name: value for name, value in field.items() if name != "anyOf"}
    return {**rest, "if": _TEXT, "then": {}, "else": mappings[0]}


class ByType:
    """In the annotation of a union that `type` tells apart: errors are those of the form that it names."""

    def __get_pydantic_json_schema__(self, core_schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchema:
        forms = dict(zip(core_schema["choices"], handler(core_schema)["oneOf"], strict=True))
        named = [{"if": {"properties": {"type": {"const": name}}}, "then": form} for name, form in forms.items()]
        types = {"properties": {"type": {"enum": list(forms)}}, "required": ["type"]}
        return {"type": "object", **types, "allOf": named}
