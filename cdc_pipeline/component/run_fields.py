"""The fields `sensor`, `follow` and `freshness`."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated, Any

import dagster as dg
from pydantic import Field, field_validator, model_validator

from cdc_pipeline.assets.follower import FollowLimits
from cdc_pipeline.checks.freshness import FreshnessLimits
from cdc_pipeline.component.json_schema import YamlModel
from cdc_pipeline.sensors.new_offsets import SensorTiming


def settings_resolver(settings: type[dg.Resolvable]) -> dg.Resolver:
    """Resolves a mapping of the YAML file to these settings."""

    def resolve(context: dg.ResolutionContext, model: Any) -> Any:
        if isinstance(model, str):
            # Dagster treats text as a template, and its own resolver fails without naming the expected type. Without the
            # text, which may be a secret
            raise ValueError("is text: a mapping of fields is expected")
        return settings.resolve_from_model(context, model)

    return dg.Resolver(resolve, model_field_type=settings.model())


class SensorSettings(YamlModel):
    """When the sensor requests a run."""

    running: Annotated[bool, Field(description="Turn the sensor on by default.")] = False
    interval_seconds: Annotated[int, Field(description="Seconds between two evaluations of the sensor.")] = 30
    minimum_records: Annotated[int, Field(description="Minimum number of new records (Kafka: offsets) for a run.")] = 1
    maximum_wait_seconds: Annotated[
        int, Field(description="After this time, fewer than minimum_records records start a run, too.")
    ] = 300

    @field_validator("interval_seconds", "minimum_records", "maximum_wait_seconds")
    @classmethod
    def _is_positive(cls, value: int) -> int:
        if value < 1:
            raise ValueError(f"{value} is too small: 1 or more is expected")
        return value

    @property
    def timing(self) -> SensorTiming:
        return SensorTiming(self.interval_seconds, self.minimum_records, self.maximum_wait_seconds)


class FollowSettings(YamlModel):
    """How `<name>_follow` follows the source. Fewer than `sensor.minimum_records` records wait, as for the sensor."""

    enabled: Annotated[bool, Field(description="The sensor requests `<name>_follow` instead of `<name>_ingest`.")] = (
        False
    )
    maximum_minutes: Annotated[
        float, Field(description="A run ends after this time; the sensor requests the next one.")
    ] = 30
    idle_minutes: Annotated[float, Field(description="A run ends when it found no new records for this time.")] = 10
    minimum_pause_seconds: Annotated[
        float, Field(description="Least time between two batches, and between two looks at the source. 0.2 or more.")
    ] = 0.5

    @field_validator("maximum_minutes", "idle_minutes")
    @classmethod
    def _is_positive(cls, value: float) -> float:
        if value <= 0:
            raise ValueError(f"{value} is not a duration: more than 0 minutes are expected")
        return value

    @field_validator("minimum_pause_seconds")
    @classmethod
    def _is_a_pause(cls, value: float) -> float:
        # other runs of the pipeline look for the writer lock ten times a second
        if value < 0.2:
            raise ValueError(f"{value} is too small: 0.2 or more seconds are expected")
        return value

    def limits(self, timing: SensorTiming) -> FollowLimits:
        return FollowLimits(
            self.maximum_minutes * 60,
            self.idle_minutes * 60,
            self.minimum_pause_seconds,
            timing.minimum_records,
            timing.maximum_wait_seconds,
        )


class FreshnessSettings(YamlModel):
    """Limits for the lag of the mirrors behind the clock."""

    warn_minutes: Annotated[
        float | None,
        Field(
            description="The check `fresh` warns if the resolved TSO (without TSOs: the newest DataWorks heartbeat) is at "
            "least this old. Canal and TiCDC without TSOs have no lag, and always pass."
        ),
    ] = None
    fail_minutes: Annotated[
        float | None,
        Field(
            description="The check `fresh` fails at this age. With it, Dagster's daemon also compares both limits with the "
            "time since the last run (`freshness: {enabled: true}` in dagster.yaml), and both have to be 1 or more."
        ),
    ] = None

    @field_validator("warn_minutes", "fail_minutes")
    @classmethod
    def _is_positive(cls, value: float | None) -> float | None:
        if value is not None and value <= 0:
            raise ValueError(f"{value} is not an age: more than 0 minutes are expected")
        return value

    @model_validator(mode="after")
    def _warns_first(self) -> FreshnessSettings:
        if self.warn_minutes is not None and self.fail_minutes is not None and self.warn_minutes >= self.fail_minutes:
            raise ValueError(f"warn_minutes {self.warn_minutes} is not below fail_minutes {self.fail_minutes}")
        if self.fail_minutes is not None:
            self._require_policy(self.warn_minutes, self.fail_minutes)
        return self

    @staticmethod
    def _require_policy(*limits: float | None) -> None:
        # with fail_minutes both become a freshness policy of Dagster, whose least window is a minute
        for minutes in limits:
            if minutes is not None and minutes < 1:
                raise ValueError(f"{minutes} is too small: with fail_minutes, 1 or more minutes are expected")

    @property
    def limits(self) -> FreshnessLimits:
        warn, fail = (
            None if minutes is None else timedelta(minutes=minutes)
            for minutes in (self.warn_minutes, self.fail_minutes)
        )
        return FreshnessLimits(warn, fail)
