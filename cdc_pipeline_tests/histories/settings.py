"""How a history is encoded and delivered."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from cdc_pipeline_tests.histories.choices import Choices, Seeded
from cdc_pipeline_tests.histories.encoders import dispatchers, has_watermarks
from cdc_pipeline_tests.histories.sender import Disturbances


@dataclass(frozen=True)
class Settings:
    """Of one history."""

    mode: str
    partitions: int = 1
    dispatcher: str = "table"
    raw_changes: bool = False
    disturbances: Disturbances = field(default_factory=Disturbances)
    slices: int = 1
    seed: int | None = None
    """The seed of the history, if it has one."""
    ddl: float = 0
    """The chance of DDL before a transaction."""
    partition_ddl: bool = True
    """DDL includes that of table partitions."""
    plain_ddl: bool = False
    """DDL is only CREATE, TRUNCATE and DROP TABLE."""
    together: bool = False
    """DDL shares its moment with rows, so that only ordering by time works."""
    apart: bool = False
    """Partitions may advance unevenly even where `in_step` would forbid it. Then only the final state can be compared."""
    respelt: bool = False
    """Some values have two text forms."""
    recased: bool = False
    """Statements spell names in any case. The upstream of Canal has `lower_case_table_names=1`."""
    numbered: bool = True
    """Canal's messages have batch numbers."""

    replayed: bool = False
    """A stretch of the binlog is played again (Canal with batch numbers)."""
    by_table: bool = False
    """Each table has its own topic (TiCDC with watermarks)."""

    @property
    def in_step(self) -> bool:
        """Whether each file continues the sending order where the one before ended.

        Without watermarks, rows of one key in several partitions need it. So does DDL in partition 0, which would otherwise
        lose its place among the rows, unless it only empties tables or partitions go `apart`.
        """
        return (
            not has_watermarks(self.mode)
            and not self.apart
            and (
                self.dispatcher in ("ts", "key")
                or (self.dispatcher == "index_value" and self.raw_changes)
                or (self.ddl > 0 and not self.plain_ddl)
            )
        )

    @property
    def ddl_apart(self) -> int:
        """For how many ms a DDL statement has no other events, where only its `es` orders it. 0: none."""
        return 0 if self.together else {"default": 1, "canal": 1000}.get(self.mode, 0)


def drawn_settings(
    choices: Choices,
    mode: str,
    *,
    seed: int | None = None,
    complete: bool = False,
    ddl: bool = True,
    partition_ddl: bool = True,
    ambiguous: bool = True,
) -> Settings:
    """Random settings that are valid for the mode.

    `complete`: always sends a final watermark above all changes. `ddl`: DDL may occur. `ambiguous`: includes what the plain
    reader (`fold`) cannot resolve: DDL at the same moment as rows, values with two text forms, names in another case.
    """
    watermarks = has_watermarks(mode)
    settings = Settings(
        mode,
        partitions=choices.integer(1, 4),
        dispatcher=choices.pick(dispatchers(mode)),
        raw_changes=choices.chance(0.5),
        disturbances=Disturbances(
            watermarks=choices.pick((0.1, 0.05, 0.3)),
            interleave=watermarks and choices.chance(0.5),
            restarts=choices.integer(0, 2) if mode != "dataworks" else 0,
            retries=choices.integer(0, 3) if watermarks else 0,
            swaps=choices.integer(0, 3) if watermarks else 0,
            repeats=choices.integer(0, 3),
            complete=not choices.chance(0.15) or complete,
        ),
        slices=choices.integer(1, 3),
        seed=seed,
    )
    # drawn last, so that seeds without DDL keep their histories
    share = choices.pick((0, 0.05, 0.15, 0.15, 0.3)) if ddl else 0
    if ambiguous:
        settings = replace(settings, respelt=mode != "dataworks" and choices.chance(0.3))
    settings = _with_clocks_and_numbers(settings, choices)
    if not share:
        return settings
    together = ambiguous and not watermarks and mode != "dataworks" and choices.chance(0.6)
    settings = replace(
        settings,
        ddl=share,
        partition_ddl=partition_ddl,
        plain_ddl=choices.chance(0.15),
        disturbances=replace(settings.disturbances, ddl=True),
        together=together,
        apart=together and settings.dispatcher in ("table", "key") and choices.chance(0.3),
    )
    if mode == "canal" and seed is not None and ambiguous and not settings.plain_ddl and not settings.apart:
        settings = replace(settings, replayed=Seeded(seed + 10**9).chance(0.5))
    settings = replace(settings, recased=ambiguous and mode != "dataworks" and choices.chance(0.2))
    again = choices.integer(0, 1) if together and mode == "canal" and not settings.disturbances.kept_clocks else 0
    return replace(settings, disturbances=replace(settings.disturbances, again=again))


def _with_clocks_and_numbers(settings: Settings, choices: Choices) -> Settings:
    """Now and then Canal keeps its clock when it resends, or its messages have no batch numbers."""
    if settings.mode != "canal":
        return settings
    disturbances = replace(settings.disturbances, kept_clocks=choices.chance(0.3))
    return replace(settings, numbered=not choices.chance(0.15), disturbances=disturbances)
