"""The field `notify`: which alerts are sent to which channels. URLs of webhooks and the password are secrets."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated
from urllib.parse import urlsplit

from pydantic import ConfigDict, Field, field_serializer, field_validator, model_validator

from cdc_pipeline.component.json_schema import YamlModel
from cdc_pipeline.component.run_fields import settings_resolver
from cdc_pipeline.component.templates import secret_resolver
from cdc_pipeline.sensors.alerts import EVENTS
from cdc_pipeline.sensors.delivery import DEFAULT_PORTS, Email, JsonWebhook, SlackWebhook, SmtpType
from cdc_pipeline.sensors.notifications import NotifyRules
from cdc_pipeline.sources.kafka.secret_text import HIDDEN, SecretText

if TYPE_CHECKING:
    from cdc_pipeline.sensors.delivery import Channel

_ADDRESS = re.compile(r"[^@\s,<>]+@[^@\s,<>]+")
_MAX_PORT = 65_535


class EmailSettings(YamlModel):
    """E-mail over SMTP, with the parameters of Dagster's `make_email_on_run_failure_sensor`."""

    # errors must not show the value, which may be a password
    model_config = ConfigDict(hide_input_in_errors=True)

    email_from: Annotated[str, Field(description="Address of the sender.")]
    email_to: Annotated[list[str], Field(description="Addresses of the recipients.")]
    smtp_host: Annotated[str, Field(min_length=1, description="SMTP server.")]
    smtp_type: Annotated[
        SmtpType,
        Field(description="`SSL`, `STARTTLS`, or `NONE` for a server that accepts mail without encryption and login."),
    ] = "SSL"
    smtp_port: Annotated[
        int | None, Field(description="Port of the server. Empty: 465 (SSL), 587 (STARTTLS) or 25 (NONE).")
    ] = None
    smtp_user: Annotated[str, Field(description="User of the login. Empty: `email_from`.")] = ""
    email_password: Annotated[
        str,
        secret_resolver("notify.email.email_password"),
        Field(description="Secret: password of the login, from the environment. Empty: no login."),
    ] = ""

    @field_validator("email_from")
    @classmethod
    def _validate_sender(cls, value: str) -> str:
        return _require_address(value)

    @field_validator("email_to")
    @classmethod
    def _validate_recipients(cls, value: list[str]) -> list[str]:
        if not value:
            raise ValueError("[] has no address: one or more are expected")
        return [_require_address(address) for address in value]

    @field_validator("smtp_port")
    @classmethod
    def _validate_port(cls, value: int | None) -> int | None:
        if value is not None and not 1 <= value <= _MAX_PORT:
            raise ValueError(f"{value} is not a port: 1 to {_MAX_PORT} is expected")
        return value

    @field_validator("email_password")
    @classmethod
    def _hide_password(cls, value: str) -> str:
        return SecretText(value)

    @field_serializer("email_password", when_used="json")
    def _redact_password(self, value: str) -> str:
        return HIDDEN if value else ""

    @model_validator(mode="after")
    def _encrypts_password(self) -> EmailSettings:
        if self.smtp_type == "NONE" and self.email_password:
            raise ValueError("email_password would be sent without encryption: smtp_type SSL or STARTTLS is expected")
        return self

    @property
    def channel(self) -> Channel:
        return Email(
            self.email_from,
            tuple(self.email_to),
            self.smtp_host,
            self.smtp_type,
            self.smtp_port or DEFAULT_PORTS[self.smtp_type],
            self.smtp_user or self.email_from,
            SecretText(self.email_password),
        )


def _require_address(value: str) -> str:
    if not _ADDRESS.fullmatch(value):
        raise ValueError(f"{value!r} is not an e-mail address: name@host is expected")
    return value


class NotifySettings(YamlModel):
    """Alerts to one or more channels. The sensor `<name>_notify` sends them."""

    model_config = ConfigDict(hide_input_in_errors=True)

    slack_url: Annotated[
        str,
        secret_resolver("notify.slack_url"),
        Field(
            description='Secret: URL of a Slack-compatible webhook, from the environment. It receives `{"text": "…"}`.'
        ),
    ] = ""
    webhook_url: Annotated[
        str,
        secret_resolver("notify.webhook_url"),
        Field(description="Secret: URL that receives each alert as a JSON object, from the environment."),
    ] = ""
    email: Annotated[
        EmailSettings | None,
        settings_resolver(EmailSettings, optional=True),
        Field(description="E-mail over SMTP."),
    ] = None
    events: Annotated[list[str], Field(description="Which alerts are sent. `lag` needs `freshness`.")] = list(EVENTS)  # noqa: RUF012  # pydantic copies it
    ui_url: Annotated[
        str,
        Field(
            description="Address of Dagster's UI, such as https://dagster.example.com, for links. Empty: messages have the "
            "asset key or the run id."
        ),
    ] = ""

    @field_validator("slack_url", "webhook_url")
    @classmethod
    def _validate_secret_url(cls, value: str) -> str:
        if value and not _is_url(value):
            # without the value, which is a secret
            raise ValueError("is not a URL: https://host/path is expected")
        return SecretText(value)

    @field_serializer("slack_url", "webhook_url", when_used="json")
    def _redact_url(self, value: str) -> str:
        return HIDDEN if value else ""

    @field_validator("events")
    @classmethod
    def _validate_events(cls, value: list[str]) -> list[str]:
        for event in value:
            if event not in EVENTS:
                raise ValueError(f"{event!r} is not an event: {', '.join(EVENTS)} are expected")
        if not value or len(set(value)) < len(value):
            raise ValueError(f"{value!r}: one or more different events are expected")
        return value

    @field_validator("ui_url")
    @classmethod
    def _validate_ui_url(cls, value: str) -> str:
        if value and "@" in value:
            raise ValueError("has a user or password: an address without them is expected, because messages contain it")
        if value and (not _is_url(value) or urlsplit(value).query or urlsplit(value).fragment):
            raise ValueError(f"{value!r} is not an address: https://host or https://host/path is expected")
        return value.rstrip("/")

    @model_validator(mode="after")
    def _has_a_channel(self) -> NotifySettings:
        if not self.channels:
            raise ValueError("no channel: slack_url, webhook_url or email is expected")
        return self

    @property
    def channels(self) -> tuple[Channel, ...]:
        found: list[Channel] = []
        if self.slack_url:
            found.append(SlackWebhook(SecretText(self.slack_url)))
        if self.webhook_url:
            found.append(JsonWebhook(SecretText(self.webhook_url)))
        if self.email is not None:
            found.append(self.email.channel)
        return tuple(found)

    @property
    def rules(self) -> NotifyRules:
        return NotifyRules(self.channels, tuple(self.events), self.ui_url)

    def require_limits(self, *, declared: bool) -> None:
        """Raises ValueError if the alert `lag` is named, but `freshness` has no limit."""
        if not declared and "events" in self.model_fields_set and "lag" in self.events:
            raise ValueError("events: 'lag' has no limit: freshness.warn_minutes or freshness.fail_minutes is expected")


def _is_url(text: str) -> bool:
    """Whether it is the URL of a server, without a user and password, which urllib does not send."""
    try:
        url = urlsplit(text)
        _ = url.port
    except ValueError:
        return False
    plain = text.isascii() and not re.search(r"\s", text) and "@" not in url.netloc
    return plain and url.scheme in ("http", "https") and bool(url.hostname)
