"""What a pipeline's file says of its runs: when they are asked for, and how old their outcome may be."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated

import dagster as dg
from pydantic import ConfigDict, Field, field_validator, model_validator

from cdc_pipeline.checks.freshness import FreshnessLimits
from cdc_pipeline.component.json_schema import Described
from cdc_pipeline.sensors.new_offsets import SensorTiming


def settings_resolver(settings: type[dg.Resolvable]) -> dg.Resolver:
    """Reads a mapping of a pipeline's file as these settings."""
    return dg.Resolver(
        lambda context, model: settings.resolve_from_model(context, model), model_field_type=settings.model()
    )


class SensorSettings(Described):
    """When the sensor asks for a run."""

    model_config = ConfigDict(extra="forbid")

    running: Annotated[
        bool, Field(description="Whether it runs from the start, without being switched on in the UI.")
    ] = False
    interval_seconds: Annotated[int, Field(description="Seconds between two looks at the source.")] = 30
    minimum_records: Annotated[int, Field(description="Records that are worth a run.")] = 1
    maximum_wait_seconds: Annotated[
        int, Field(description="After this time fewer records than minimum_records are worth a run too.")
    ] = 300

    @field_validator("interval_seconds", "minimum_records", "maximum_wait_seconds")
    @classmethod
    def _is_positive(cls, value: int) -> int:
        if value < 1:
            raise ValueError(f"{value} is too little: 1 or more is expected")
        return value

    @property
    def timing(self) -> SensorTiming:
        return SensorTiming(self.interval_seconds, self.minimum_records, self.maximum_wait_seconds)


class FreshnessSettings(Described):
    """How far behind the clock the mirrors may be."""

    model_config = ConfigDict(extra="forbid")

    warn_minutes: Annotated[
        float | None,
        Field(
            description="From this age of the resolved TSO on the check `fresh` warns; where there are no TSOs, of "
            "DataWorks' newest heartbeat."
        ),
    ] = None
    fail_minutes: Annotated[
        float | None,
        Field(
            description="From this age on it fails; Dagster's daemon says so too where runs do not come at all "
            "(`freshness: {enabled: true}` in dagster.yaml)."
        ),
    ] = None

    @field_validator("warn_minutes", "fail_minutes")
    @classmethod
    def _is_positive(cls, value: float | None) -> float | None:
        if value is not None and value <= 0:
            raise ValueError(f"{value} is no age: more than 0 minutes are expected")
        return value

    @model_validator(mode="after")
    def _warns_first(self) -> FreshnessSettings:
        if self.warn_minutes is not None and self.fail_minutes is not None and self.warn_minutes >= self.fail_minutes:
            raise ValueError(f"warn_minutes {self.warn_minutes} is not below fail_minutes {self.fail_minutes}")
        return self

    @property
    def limits(self) -> FreshnessLimits:
        warn, fail = (
            None if minutes is None else timedelta(minutes=minutes)
            for minutes in (self.warn_minutes, self.fail_minutes)
        )
        return FreshnessLimits(warn, fail)
