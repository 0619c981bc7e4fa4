"""Templates such as `{{ env.NAME }}` that are rendered to text, and whose errors contain no value: it may be a secret."""

from __future__ import annotations

from typing import Any

import dagster as dg
from jinja2 import Environment, StrictUndefined

from cdc_pipeline.sources.kafka.secret_text import SecretText


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
