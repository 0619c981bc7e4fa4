"""The field `notify`: the sensor that it declares, secrets from the environment, and errors at load."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import Any

import dagster as dg
import pytest

from cdc_pipeline.component.component import CdcPipeline
from cdc_pipeline.component.run_fields import EVENTS, NotifySettings

# Dagster 1.13.27 parses YAML with a deprecated call of pydantic.
pytestmark = pytest.mark.filterwarnings(
    "ignore:`parse_obj_as` is deprecated:pydantic.warnings.PydanticDeprecatedSince20"
)

_GOOD: dict[str, Any] = {"name": "shop", "source": {"type": "capture_files", "path": "captures"}, "lake": "lake"}
_HOOK, _MAIL = "jsons://alerts.example.com/x?+Key=hunter2", "mailto://me:hunter2@example.com?to=b@x.org"


@pytest.fixture(autouse=True)
def _environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CDC_HOOK", _HOOK)
    monkeypatch.setenv("CDC_MAIL", _MAIL)


def _yaml(notify: Any, **fields: Any) -> str:
    """A pipeline's file in flow style."""
    return f"type: cdc_pipeline.CdcPipeline\nattributes: {json.dumps({**_GOOD, 'notify': notify, **fields})}\n"


_URLS = ["{{ env.CDC_HOOK }}", "{{ env.CDC_MAIL }}"]
_ALL: dict[str, Any] = {"urls": _URLS, "events": ["no_gaps", "run_failed"], "ui_url": "https://dagster.example.com/x/"}


def test_fields(load: Callable[[str], CdcPipeline]) -> None:
    given = load(_yaml(_ALL)).notify
    assert (given.urls, given.events) == ([_HOOK, _MAIL], ["no_gaps", "run_failed"])
    assert given.ui_url == "https://dagster.example.com/x"
    assert NotifySettings(**{**_ALL, "urls": [_HOOK, _MAIL]}) == given
    single = load(_yaml({"urls": "{{ env.CDC_HOOK }}"})).notify
    assert single == NotifySettings(urls=[_HOOK])
    # an empty variable is no channel
    assert load(_yaml({"urls": ["{{ env('CDC_NONE', '') }}", _HOOK]})).notify.urls == [_HOOK]
    assert single.events == [*EVENTS]


def test_sensor_exists_only_if_declared(load: Callable[[str], CdcPipeline]) -> None:
    declared, other = load(_yaml({"urls": [_HOOK]}, freshness={"warn_minutes": 5})), load(_yaml({"urls": ""}))
    names = [sensor.name for sensor in declared.build_defs().sensors or ()]
    assert names == ["shop_new_offsets", "shop_new_tables", "shop_notify"]
    assert [sensor.name for sensor in other.build_defs().sensors or ()] == names[:2]
    sensor = list(declared.build_defs().sensors or ())[-1]
    assert isinstance(sensor, dg.SensorDefinition)
    assert sensor.default_status == dg.DefaultSensorStatus.RUNNING
    with dg.DagsterInstance.ephemeral() as instance:
        found = sensor(dg.build_sensor_context(instance=instance, sensor_name=sensor.name))
    assert isinstance(found, dg.SensorResult)
    assert found.skip_reason == dg.SkipReason("nothing to report")


def test_every_check_is_an_event(load: Callable[[str], CdcPipeline]) -> None:
    assets = load(_yaml({})).build_defs().assets or ()
    checks = {spec.name for found in assets if isinstance(found, dg.AssetsDefinition) for spec in found.check_specs}
    assert checks <= set(EVENTS)


def test_secrets_are_hidden(load: Callable[[str], CdcPipeline]) -> None:
    component = load(_yaml(_ALL))
    sensor = list(component.build_defs().sensors or ())[-1]
    shown = (
        repr(component),
        str(component),
        component.model_dump_json(),
        repr(component.model_dump()),
        repr(component.notify),
        repr(sensor),
        str(sensor.description),
    )
    for text in shown:
        assert "hunter2" not in text
    assert component.model_dump_json().count("***") == 2


@pytest.mark.parametrize(
    ("notify", "fields", "parts"),
    [
        (_ALL, {"lake": ""}, ["lake"]),
        (_ALL, {"other": 1}, ["other"]),
        (_ALL, {"merge_threads": 0}, ["merge_threads"]),
        ({**_ALL, "other": 1}, {}, ["notify", "other", "Extra inputs"]),
        ("{{ env.CDC_HOOK }}", {}, ["notify", "is text: a mapping of fields is expected"]),
        ({"urls": [5]}, {}, ["urls", "string"]),
        ({"urls": ["{{ env.CDC_HOOK | nofilter }}"]}, {}, ["notify.urls cannot be rendered", "nofilter"]),
        ({"urls": ["{{ env.CDC_NONE }}"]}, {}, ["urls.0: the environment variable CDC_NONE is not set"]),
        ({**_ALL, "events": ["gaps"]}, {}, ["events", "'gaps' is not an event", "no_dead_letters", "run_failed"]),
    ],
)
def test_errors(notify: Any, fields: dict[str, Any], parts: list[str], load: Callable[[str], CdcPipeline]) -> None:
    with pytest.raises(Exception) as error:  # noqa: PT011 - Dagster's own kinds
        load(_yaml(notify, **fields))
    shown = _messages(error.value)
    for part in parts:
        assert part in shown
    assert "hunter2" not in shown


@pytest.mark.parametrize(
    "value", ["https://x.org/hunter2", "slack://hunter2", "hunter2", "json://u:hunter2@h:port"], ids=range(4)
)
def test_wrong_url(value: str, load: Callable[[str], CdcPipeline], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CDC_MAIL", value)
    with pytest.raises(Exception) as error:  # noqa: PT011 - Dagster's own kinds
        load(_yaml(_ALL))
    shown = _messages(error.value)
    assert "number 2 is not a URL of Apprise: service://… is expected" in shown
    assert "hunter2" not in shown


@pytest.mark.parametrize(
    "value", ["x", "ftp://hunter2", "https://me:hunter2@h", "https://h/?a=hunter2", "https://", "https://h x"]
)
def test_wrong_address(value: str) -> None:
    with pytest.raises(ValueError, match=r"ui_url\n.*https://host or https://host/path is expected") as error:
        NotifySettings(urls=[_HOOK], ui_url=value)
    assert "hunter2" not in str(error.value)


def _messages(error: BaseException | None) -> str:
    """The texts of the error and of its causes."""
    found = []
    while error is not None:
        found.append(f"{error}")
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    return "\n".join(found)


def test_without_apprise(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "apprise", None)
    with pytest.raises(
        ValueError, match=r"urls\n.*needs the package apprise: run pip install 'cdc_pipeline\[notify\]'"
    ):
        NotifySettings(urls=[_HOOK])
