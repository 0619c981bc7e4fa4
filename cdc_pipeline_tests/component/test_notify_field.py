"""The field `notify`: the sensor that it declares, secrets from the environment, and errors at load."""

from __future__ import annotations

import json
import logging
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import dagster as dg
import pytest

from cdc_pipeline.component.notify_field import EmailSettings, NotifySettings
from cdc_pipeline.sensors.alerts import EVENTS
from cdc_pipeline.sensors.delivery import Email, JsonWebhook, SlackWebhook
from cdc_pipeline.sensors.notifications import NotifyRules
from cdc_pipeline.sources.kafka.secret_text import SecretText

if TYPE_CHECKING:
    from collections.abc import Callable

    from cdc_pipeline.component.component import CdcPipeline

# Dagster 1.13.27 parses YAML with a deprecated call of pydantic.
pytestmark = pytest.mark.filterwarnings(
    "ignore:`parse_obj_as` is deprecated:pydantic.warnings.PydanticDeprecatedSince20"
)

_GOOD: dict[str, Any] = {"name": "shop", "source": {"type": "capture_files", "path": "captures"}, "lake": "lake"}
_SLACK, _HOOK, _PASSWORD = "https://hooks.example.com/T0/hunter2", "https://alerts.example.com/x?key=hunter2", "hunter2"
_EMAIL: dict[str, Any] = {"email_from": "a@x.org", "email_to": ["b@x.org", "c@x.org"], "smtp_host": "mail.x.org"}


@pytest.fixture(autouse=True)
def _environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CDC_SLACK", _SLACK)
    monkeypatch.setenv("CDC_HOOK", _HOOK)
    monkeypatch.setenv("CDC_PASSWORD", _PASSWORD)


def _yaml(notify: Any, **fields: Any) -> str:
    """A pipeline's file in flow style."""
    return f"type: cdc_pipeline.CdcPipeline\nattributes: {json.dumps({**_GOOD, 'notify': notify, **fields})}\n"


_ALL = {
    "slack_url": "{{ env.CDC_SLACK }}",
    "webhook_url": "{{ env.CDC_HOOK }}",
    "email": {**_EMAIL, "smtp_type": "STARTTLS", "smtp_user": "u", "email_password": "{{ env.CDC_PASSWORD }}"},
    "events": ["gap", "lag"],
    "ui_url": "https://dagster.example.com/x/",
}


def test_all_fields(load: Callable[[str], CdcPipeline]) -> None:
    component = load(_yaml(_ALL, freshness={"warn_minutes": 5}))
    assert component.notify is not None
    mail = Email("a@x.org", ("b@x.org", "c@x.org"), "mail.x.org", "STARTTLS", 587, "u", SecretText(_PASSWORD))
    channels = (SlackWebhook(SecretText(_SLACK)), JsonWebhook(SecretText(_HOOK)), mail)
    assert component.notify.rules == NotifyRules(channels, ("gap", "lag"), "https://dagster.example.com/x")


def test_defaults(load: Callable[[str], CdcPipeline]) -> None:
    component = load(_yaml({"email": _EMAIL}))
    assert component.notify is not None
    mail = Email("a@x.org", ("b@x.org", "c@x.org"), "mail.x.org", "SSL", 465, "a@x.org")
    assert component.notify.rules == NotifyRules((mail,), EVENTS, "")


def test_sensor_exists_only_if_declared(load: Callable[[str], CdcPipeline]) -> None:
    declared, other = load(_yaml({"slack_url": _SLACK})), load(_yaml(None))
    names = [sensor.name for sensor in declared.build_defs().sensors or ()]
    assert names == ["shop_new_offsets", "shop_new_tables", "shop_notify"]
    assert [sensor.name for sensor in other.build_defs().sensors or ()] == names[:2]
    sensor = list(declared.build_defs().sensors or ())[-1]
    assert sensor.default_status == dg.DefaultSensorStatus.RUNNING
    assert sensor.minimum_interval_seconds == 30


def test_sensor_of_an_empty_pipeline_has_nothing_to_report(load: Callable[[str], CdcPipeline]) -> None:
    *_, sensor = load(_yaml({"slack_url": _SLACK}, freshness={"warn_minutes": 5})).build_defs().sensors or ()
    assert isinstance(sensor, dg.SensorDefinition)
    with dg.DagsterInstance.ephemeral() as instance:
        found = sensor(dg.build_sensor_context(instance=instance, sensor_name=sensor.name))
    assert isinstance(found, dg.SensorResult)
    assert found.skip_reason == dg.SkipReason("nothing to report")


def test_python_declaration_is_equal(load: Callable[[str], CdcPipeline]) -> None:
    email = {**_ALL["email"], "email_password": _PASSWORD}  # type: ignore[dict-item]
    fields = {**_ALL, "slack_url": _SLACK, "webhook_url": _HOOK, "email": EmailSettings(**email)}
    assert NotifySettings(**fields) == load(_yaml(_ALL, freshness={"warn_minutes": 5})).notify


# ---- secrets


def test_secrets_are_hidden(load: Callable[[str], CdcPipeline], caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    component = load(_yaml(_ALL, freshness={"fail_minutes": 5}))
    assert component.notify is not None
    sensor = list(component.build_defs().sensors or ())[-1]
    shown = (
        repr(component),
        str(component),
        component.model_dump_json(),
        repr(component.model_dump()),
        repr(component.notify.rules),
        repr(sensor),
        str(sensor.description),
        caplog.text,
    )
    for text in shown:
        assert "hunter2" not in text
    assert component.model_dump_json().count("***") == 3


@pytest.mark.parametrize(
    ("notify", "fields"),
    [
        (_ALL, {"lake": ""}),
        (_ALL, {"other": 1}),
        (_ALL, {"merge_threads": 0}),
        (_ALL, {"notify_": 0}),
        (_ALL, {}),  # lag without limits
        ({**_ALL, "events": ["x"]}, {}),
        ({**_ALL, "other": 1}, {}),
        ({**_ALL, "email": {**_EMAIL, "smtp_type": "NONE", "email_password": "{{ env.CDC_PASSWORD }}"}}, {}),
        ({**_ALL, "email": {**_EMAIL, "email_to": [], "email_password": "{{ env.CDC_PASSWORD }}"}}, {}),
        ({**_ALL, "webhook_url": "{{ env.CDC_HOOK | nofilter }}"}, {}),
        ("{{ env.CDC_SLACK }}", {}),
        ({**_ALL, "email": "{{ env.CDC_PASSWORD }}"}, {}),
    ],
)
def test_errors_contain_no_secret(notify: Any, fields: dict[str, Any], load: Callable[[str], CdcPipeline]) -> None:
    with pytest.raises(Exception) as error:  # noqa: PT011 - Dagster's own kinds
        load(_yaml(notify, **fields))
    assert "hunter2" not in _messages(error.value)


@pytest.mark.parametrize("field", ["slack_url", "webhook_url", "ui_url"])
@pytest.mark.parametrize(
    "value",
    [
        "hooks.example.com/hunter2@",
        "ftp://hooks.example.com/@hunter2",
        "https://hooks.example.com:x/@hunter2",
        "https://[@hunter2",
        "https://@host/ hunter2",
        "https://me:hunter2@/",
    ],
)
def test_wrong_url_is_not_shown(
    field: str, value: str, load: Callable[[str], CdcPipeline], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CDC_WRONG", value)
    with pytest.raises(Exception) as error:  # noqa: PT011 - Dagster's own kinds
        load(_yaml({**_ALL, field: "{{ env.CDC_WRONG }}"}))
    shown = _messages(error.value)
    assert field in shown
    assert "expected" in shown
    assert "hunter2" not in shown


def _messages(error: BaseException | None) -> str:
    """The texts of the error and of its causes."""
    found = []
    while error is not None:
        found.append(f"{error}")
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    return "\n".join(found)


# ---- errors


@pytest.mark.parametrize(
    ("notify", "parts"),
    [
        ({}, ["notify", "no channel", "slack_url, webhook_url or email"]),
        ("slack", ["notify", "is text: a mapping of fields is expected"]),
        ({"slack_url": "hooks"}, ["slack_url", "is not a URL", "https://host/path is expected"]),
        ({"slack_url": 5}, ["slack_url", "5", "string"]),
        ({"slack_url": "{{ env.CDC_NONE }}"}, ["slack_url: the environment variable CDC_NONE is not set"]),
        ({"slack_url": "https://me:x@hooks.example.com"}, ["slack_url", "is not a URL"]),
        ({"webhook_url": "file:///etc/passwd"}, ["webhook_url", "is not a URL"]),
        ({"slack_url": _SLACK, "events": ["gaps"]}, ["events", "'gaps' is not an event", "dead_letters"]),
        ({"slack_url": _SLACK, "events": []}, ["events", "[]", "one or more different events"]),
        ({"slack_url": _SLACK, "events": ["gap", "gap"]}, ["events", "one or more different events"]),
        ({"slack_url": _SLACK, "events": ["lag"]}, ["notify", "'lag' has no limit", "freshness.warn_minutes"]),
        ({"slack_url": _SLACK, "ui_url": "dagster"}, ["ui_url", "'dagster' is not an address", "https://host"]),
        ({"slack_url": _SLACK, "ui_url": "https://h/?a=b"}, ["ui_url", "is not an address"]),
        ({"slack_url": _SLACK, "channel": "x"}, ["notify", "channel", "Extra inputs"]),
        ({"email": {}}, ["notify", "email", "smtp_host", "Field required"]),
        ({"email": {**_EMAIL, "smtp": 5}}, ["notify", "email", "smtp", "Extra inputs"]),
        ({"email": {**_EMAIL, "smtp_type": "TLS"}}, ["email", "smtp_type", "'SSL', 'STARTTLS' or 'NONE'"]),
        ({"email": {**_EMAIL, "smtp_port": 0}}, ["smtp_port", "0 is not a port", "1 to 65535"]),
        ({"email": {**_EMAIL, "email_to": []}}, ["email_to", "has no address", "one or more"]),
        ({"email": {**_EMAIL, "email_to": ["b@x.org\nBcc: c@x.org"]}}, ["email_to", "is not an e-mail address"]),
        ({"email": {**_EMAIL, "email_from": "me"}}, ["email_from", "'me' is not an e-mail address", "name@host"]),
        (
            {"email": {**_EMAIL, "smtp_type": "NONE", "email_password": "x"}},
            ["email", "without encryption", "SSL or STARTTLS"],
        ),
    ],
)
def test_wrong_fields(notify: Any, parts: list[str], load: Callable[[str], CdcPipeline]) -> None:
    with pytest.raises(Exception) as error:  # noqa: PT011 - Dagster's own kinds
        load(_yaml(notify))
    shown = _messages(error.value)
    for part in parts:
        assert part in shown


def test_lag_of_the_default_needs_no_limits(load: Callable[[str], CdcPipeline]) -> None:
    assert load(_yaml({"slack_url": _SLACK})).notify is not None
    limited = load(_yaml({"slack_url": _SLACK, "events": ["lag"]}, freshness={"fail_minutes": 3}))
    assert limited.freshness.limits.fail == timedelta(minutes=3)


def test_empty_variable_is_no_channel(load: Callable[[str], CdcPipeline]) -> None:
    component = load(_yaml({"slack_url": "{{ env('CDC_NONE', '') }}", "webhook_url": _HOOK}))
    assert component.notify is not None
    assert [channel.name for channel in component.notify.channels] == ["webhook_url"]
