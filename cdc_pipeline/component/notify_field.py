"""The field `notify`: which alerts are sent, and where. Its URLs are secrets."""

from __future__ import annotations

import re
from typing import Annotated, Any

import dagster as dg
from pydantic import ConfigDict, Field, field_serializer, field_validator

from cdc_pipeline.checks.specs import CHECKS
from cdc_pipeline.component.json_schema import YamlModel
from cdc_pipeline.component.templates import render_template
from cdc_pipeline.sensors.notifications import RUN_FAILED, Notify, to_service
from cdc_pipeline.sources.kafka.secret_text import HIDDEN, SecretText

EVENTS = (*CHECKS, RUN_FAILED)


def _resolve_urls(context: dg.ResolutionContext, urls: Any) -> list[str]:
    """The URLs with their templates rendered. Errors do not contain them."""
    listed = urls if isinstance(urls, list) else [urls]
    if not all(isinstance(url, str) for url in listed):
        raise ValueError("notify.urls: text or a list of texts is expected")
    try:
        return [SecretText(render_template(context, url)) for url in listed]
    except Exception as error:
        raise ValueError(f"notify.urls cannot be rendered: {error}") from None


class NotifySettings(YamlModel):
    """Alerts to one or more channels. The sensor `<name>_notify` sends them."""

    # errors must not show the value, which may be a secret
    model_config = ConfigDict(hide_input_in_errors=True)

    urls: Annotated[
        list[str],
        dg.Resolver(_resolve_urls, model_field_type=list[str], inject_before_resolve=False),
        Field(
            description="Secret: URLs of the channels, from the environment, in the form of Apprise "
            "(https://appriseit.com/services/): Slack, e-mail, Teams, a JSON webhook and others. Empty ones are ignored."
        ),
    ] = []  # noqa: RUF012  # pydantic copies it
    events: Annotated[
        list[str],
        Field(description=f"Names of the checks whose failures are sent, and `{RUN_FAILED}` for runs."),
    ] = list(EVENTS)  # noqa: RUF012  # pydantic copies it
    ui_url: Annotated[
        str,
        Field(description="Address of Dagster's UI, such as https://dagster.example.com, for links. Empty: no links."),
    ] = ""

    @field_validator("urls")
    @classmethod
    def _validate_urls(cls, value: list[str]) -> list[str]:
        for number, url in enumerate(value, 1):
            if url and to_service(url) is None:
                # without the value, which is a secret
                raise ValueError(f"number {number} is not a URL of Apprise: service://… is expected")
        return [SecretText(url) for url in value if url]

    @field_serializer("urls", when_used="json")
    def _redact_urls(self, value: list[str]) -> list[str]:
        return [HIDDEN] * len(value)

    @field_validator("events")
    @classmethod
    def _validate_events(cls, value: list[str]) -> list[str]:
        for event in value:
            if event not in EVENTS:
                raise ValueError(f"{event!r} is not an event: some of {', '.join(EVENTS)} are expected")
        return value

    @field_validator("ui_url")
    @classmethod
    def _validate_ui_url(cls, value: str) -> str:
        if value and not re.fullmatch(r"https?://[^\s/@?#][^\s@?#]*", value):
            raise ValueError(
                "is not an address: https://host or https://host/path is expected, without user or password"
            )
        return value.rstrip("/")

    @property
    def settings(self) -> Notify:
        return Notify(tuple(self.urls), tuple(self.events), self.ui_url)
