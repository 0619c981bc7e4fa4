"""The base of the models of the YAML file: their JSON schema, for `dg check` and the UI, and templates in their values.

The schema that Dagster derives lacks the descriptions of fields with a default, and names no field for errors inside a
mapping such as `source` or `sensor`. This module adds both. Templates such as `{{ env.NAME }}` are rendered to text, with
errors that contain no value: it may be a secret.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Callable
from datetime import datetime
from functools import reduce
from operator import or_
from typing import Annotated, Any

import dagster as dg
from jinja2 import Environment, StrictUndefined
from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Discriminator,
    GetJsonSchemaHandler,
    PlainSerializer,
    Tag,
    field_validator,
)
from pydantic_core import CoreSchema

from cdc_pipeline.contracts.canal_json import FIRST_TSO, LAST_TSO
from cdc_pipeline.sources.kafka.client_settings import HIDDEN, SecretText

JsonSchema = dict[str, Any]
Secret = Annotated[
    str, AfterValidator(SecretText), PlainSerializer(lambda text: HIDDEN if text else "", when_used="json")
]
_TEXT: JsonSchema = {"type": "string"}
_VARIABLE = re.compile(r"\{\{\s*env\.(\w+)\s*\}\}")


class YamlModel(dg.Model, dg.Resolvable):
    """Base of the models of the YAML file. Its schema has all descriptions and examples and precise errors.

    The text below a field is its description.
    """

    model_config = ConfigDict(use_attribute_docstrings=True)

    @classmethod
    def resolve_from_model(cls, context: dg.ResolutionContext, model: BaseModel) -> Any:
        """The settings with their templates rendered.

        Raises ValueError for `{{ env.NAME }}` of a variable that is not set. Dagster renders it as None: as the value, or
        as this word within a text.
        """
        for name, value in model:
            # None, as which Dagster renders such a variable, is a value of these fields
            is_optional = name in cls.model_fields and cls.model_fields[name].default is None
            if not (is_optional and _is_variable(value)) and (unset := _unset_variable(value, name)):
                raise ValueError(f"{unset[0]}: the environment variable {unset[1]} is not set")
        return super().resolve_from_model(context, model)

    @classmethod
    def model(cls) -> type[BaseModel]:
        derived = super().model()
        if not callable(derived.model_config.get("json_schema_extra")):
            _describe(derived, cls)
        return derived


def limit(*fields: str, least: float = 0, above: float | None = None, most: float = math.inf) -> Any:
    """A validator of numbers or None in these fields: from `least` or `above`, to `most`.

    Not Field(ge=…): Dagster copies it to its own model of the YAML, where text causes an unclear error.
    """
    expected = f"{least} or more" if above is None else f"more than {above}"
    expected = expected if most == math.inf else f"{least} to {most}"

    def validate(value: float | None) -> float | None:
        if value is None or (least <= value <= most and (above is None or value > above)):
            return value
        raise ValueError(f"{value} is too {'large' if value > most else 'small'}: {expected} is expected")

    return field_validator(*fields)(validate)


def milliseconds(field: str, value: str | int | None) -> int:
    """An instant in ms since 1970. Raises ValueError, which names the field."""
    text = str(value)
    if re.fullmatch(r"\d{13}", text):
        return int(text)
    try:
        moment = datetime.fromisoformat(text.replace("Z", "+00:00"))
    except ValueError:
        moment = None
    if moment is None or moment.tzinfo is None:
        raise ValueError(
            f"{field}: {text!r} is not an instant: 2026-11-22T10:00:00Z or ms since 1970 (13 digits) is expected"
        )
    return int(moment.timestamp() * 1000)


def require_tso(value: int | None) -> int | None:
    """The value itself. Raises ValueError if it is not a TSO."""
    if value is None or FIRST_TSO <= value <= LAST_TSO:
        return value
    raise ValueError(f"{value} is not a TSO: a number such as 470613987560259584 is expected")


def _unset_variable(value: object, path: str) -> tuple[str, str] | None:
    """Path and name of the first variable in a text, list or mapping that the environment lacks."""
    if isinstance(value, str):
        return next(((path, name) for name in _VARIABLE.findall(value) if name not in os.environ), None)
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return next(filter(None, (_unset_variable(item, f"{path}.{key}") for key, item in items)), None)


def _is_variable(value: object) -> bool:
    return isinstance(value, str) and _VARIABLE.fullmatch(value.strip()) is not None


def _describe(derived: type[BaseModel], declared: type[BaseModel]) -> None:
    for name, field in derived.model_fields.items():
        origin = declared.model_fields[name]
        field.description, field.examples = " ".join((origin.description or "").split()) or None, origin.examples
    extra = derived.model_config.get("json_schema_extra")
    added: JsonSchema = extra if isinstance(extra, dict) else {}

    def precise(schema: JsonSchema) -> None:
        schema.update(added)
        schema["properties"] = {name: _precise(field) for name, field in schema["properties"].items()}
        # the error for an unknown field lists these
        schema["propertyNames"] = {"enum": list(schema["properties"])}

    derived.model_config["json_schema_extra"] = precise
    derived.model_rebuild(force=True)


def _precise(field: JsonSchema) -> JsonSchema:
    """For a field that is text, or a mapping of fields or to named values: if/else, which reports errors inside the
    mapping, in place of `anyOf`."""
    forms = field.get("anyOf", [])
    mappings = [form for form in forms if form != _TEXT]
    if len(mappings) != 1 or len(forms) != 2:
        return field
    if not {"$ref", "allOf"} & mappings[0].keys() and "enum" not in mappings[0].get("additionalProperties", {}):
        return field  # Dagster's example of a file needs the type
    rest = {name: value for name, value in field.items() if name != "anyOf"}
    return {**rest, "if": _TEXT, "then": {}, "else": mappings[0]}


class _ByType:
    """Annotation of a union with the discriminator `type`: only the errors of the named type are reported."""

    def __get_pydantic_json_schema__(self, core_schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchema:
        forms = {name: handler(form) for name, form in core_schema["choices"].items()}
        named = [{"if": {"properties": {"type": {"const": name}}}, "then": form} for name, form in forms.items()]
        types = {"properties": {"type": {"enum": list(forms)}}, "required": ["type"]}
        return {"type": "object", **types, "allOf": named}


def _type_of(value: Any) -> str | None:
    name = value.get("type") if isinstance(value, dict) else getattr(value, "type", None)
    return name if isinstance(name, str) else None


def settings_resolver(settings: type[YamlModel], from_text: Callable[[Any], Any] | None = None) -> dg.Resolver:
    """Resolves a mapping to these settings. `from_text`: the value of a text, whose template is rendered."""

    def resolve(context: dg.ResolutionContext, model: Any) -> Any:
        if not isinstance(model, str):
            return settings.resolve_from_model(context, model)
        if from_text is not None:
            return from_text(context.resolve_value(model))
        # Dagster treats text as a template, and its own resolver fails without naming the expected type. Without the text,
        # which may be a secret
        raise ValueError("is text: a mapping of fields is expected")

    return dg.Resolver(resolve, model_field_type=str | settings.model() if from_text else settings.model())


def resolver_by_type(field: str, **models: type[YamlModel]) -> dg.Resolver:
    """Resolves a mapping to the model that its `type` names. Errors concern this model only."""

    def resolve(context: dg.ResolutionContext, model: Any) -> Any:
        if isinstance(model, str):
            # Dagster treats text as a template, and its own resolver fails without naming the expected type
            raise ValueError(f"{field}: {model!r} is not a {field}: a mapping with type and its fields is expected")
        return model if model is None else models[model.type].resolve_from_model(context, model)

    forms: Any = reduce(or_, (Annotated[model.model(), Tag(name)] for name, model in models.items()))
    field_type: Any = Annotated[forms, Discriminator(_type_of), _ByType()]
    return dg.Resolver(resolve, model_field_type=field_type)


def _require_value(value: Any) -> Any:
    if value is None:
        raise ValueError("an environment variable is not set")
    return value


# Dagster's own renderer evaluates the result as Python: it turns the password 1e5 into 100000.0, and '1' into 1.
_TEMPLATES = Environment(
    finalize=_require_value, undefined=StrictUndefined, keep_trailing_newline=True, autoescape=False
)


def render_template(context: dg.ResolutionContext, text: str) -> str:
    """The text with its templates rendered. Errors contain no values."""
    return _TEMPLATES.from_string(text).render(**context.scope)


def secret_resolver(name: str) -> dg.Resolver:
    """Resolves a secret text of the YAML file, the field `name`, with its template rendered. Errors do not contain it."""

    def resolve(context: dg.ResolutionContext, value: str) -> SecretText:
        if not isinstance(value, str):
            raise ValueError(f"{name}: text is expected")  # ValueError, as in pydantic validators
        try:
            return SecretText(render_template(context, value))
        except Exception as error:
            raise ValueError(f"{name} cannot be rendered: {error}") from None

    return dg.Resolver(resolve, model_field_type=str, inject_before_resolve=False)
