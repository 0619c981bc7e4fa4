"""The fields `sensor`, `follow`, `freshness` and `notify`."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Annotated, Any

import dagster as dg
from pydantic import ConfigDict, field_validator, model_validator

from cdc_pipeline.assets.follower import FollowLimits
from cdc_pipeline.checks.specs import CHECKS
from cdc_pipeline.checks.streams import FreshnessLimits
from cdc_pipeline.component.yaml_model import Secret, YamlModel, limit, render_template, settings_resolver
from cdc_pipeline.sensors.new_offsets import SensorTiming
from cdc_pipeline.sensors.notifications import RUN_FAILED, to_service
from cdc_pipeline.sources.kafka.client_settings import SecretText


class SensorSettings(YamlModel):
    """When the sensor requests a run."""

    running: bool = False
    """Turn the sensor on by default."""
    interval_seconds: int = 30
    """Seconds between two evaluations of the sensor."""
    minimum_records: int = 1
    """Minimum number of new records (Kafka: offsets) for a run."""
    maximum_wait_seconds: int = 300
    """After this time, fewer than minimum_records records start a run, too."""

    _limit_numbers = limit("interval_seconds", "minimum_records", "maximum_wait_seconds", least=1)

    @property
    def timing(self) -> SensorTiming:
        return SensorTiming(self.interval_seconds, self.minimum_records, self.maximum_wait_seconds)


SensorField = Annotated[SensorSettings, settings_resolver(SensorSettings)]


class FollowSettings(YamlModel):
    """How `<name>_follow` follows the source. Fewer than `sensor.minimum_records` records wait, as for the sensor."""

    enabled: bool = False
    """The sensor requests `<name>_follow` instead of `<name>_ingest`."""
    maximum_minutes: float = 300
    """A run ends after this time; the sensor requests the next one."""
    idle_minutes: float = 10
    """A run ends when it found no new records for this time."""
    minimum_pause_seconds: float = 0.5
    """Least time between two batches, and between two looks at the source. 0.2 or more."""

    _limit_durations = limit("maximum_minutes", "idle_minutes", above=0)
    # other runs of the pipeline look for the writer lock ten times a second
    _limit_pause = limit("minimum_pause_seconds", least=0.2)

    def limits(self, timing: SensorTiming) -> FollowLimits:
        return FollowLimits(
            self.maximum_minutes * 60,
            self.idle_minutes * 60,
            self.minimum_pause_seconds,
            timing.minimum_records,
            timing.maximum_wait_seconds,
        )


FollowField = Annotated[FollowSettings, settings_resolver(FollowSettings)]


class FreshnessSettings(YamlModel):
    """Limits for the lag of the mirrors behind the clock."""

    warn_minutes: float | None = None
    """The check `fresh` warns if the resolved TSO (without TSOs: the newest DataWorks heartbeat) is at least this old.
    Canal and TiCDC without TSOs have no lag, and always pass."""
    fail_minutes: float | None = None
    """The check `fresh` fails at this age. With it, Dagster's daemon also compares both limits with the time since the
    last run (`freshness: {enabled: true}` in dagster.yaml), and both have to be 1 or more."""

    _limit_ages = limit("warn_minutes", "fail_minutes", above=0)

    @model_validator(mode="after")
    def _warns_first(self) -> FreshnessSettings:
        if self.warn_minutes is not None and self.fail_minutes is not None and self.warn_minutes >= self.fail_minutes:
            raise ValueError(f"warn_minutes {self.warn_minutes} is not below fail_minutes {self.fail_minutes}")
        # with fail_minutes both become a freshness policy of Dagster, whose least window is a minute
        for minutes in (self.warn_minutes, self.fail_minutes):
            if self.fail_minutes is not None and minutes is not None and minutes < 1:
                raise ValueError(f"{minutes} is too small: with fail_minutes, 1 or more minutes are expected")
        return self

    @property
    def limits(self) -> FreshnessLimits:
        limits = self.warn_minutes, self.fail_minutes
        return FreshnessLimits(*(None if minutes is None else timedelta(minutes=minutes) for minutes in limits))


FreshnessField = Annotated[FreshnessSettings, settings_resolver(FreshnessSettings)]
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
        list[Secret], dg.Resolver(_resolve_urls, model_field_type=list[str], inject_before_resolve=False)
    ] = []
    """Secret: URLs of the channels, from the environment, in the form of Apprise (https://appriseit.com/services/):
    Slack, e-mail, Teams, a JSON webhook and others. Empty ones are ignored."""
    events: list[str] = list(EVENTS)
    """Names of the checks whose failures are sent, and `run_failed` for runs."""
    ui_url: str = ""
    """Address of Dagster's UI, such as https://dagster.example.com, for links. Empty: no links."""

    @field_validator("urls")
    @classmethod
    def _validate_urls(cls, value: list[str]) -> list[str]:
        for number, url in enumerate(value, 1):
            if url and to_service(url) is None:
                # without the value, which is a secret
                raise ValueError(f"number {number} is not a URL of Apprise: service://… is expected")
        return [url for url in value if url]

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


NotifyField = Annotated[NotifySettings, settings_resolver(NotifySettings)]
