"""Histories of Hypothesis and of seeds."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import strategies as st
from hypothesis.strategies import DrawFn

from cdc_pipeline_tests.histories.choices import Drawn, Seeded
from cdc_pipeline_tests.histories.combined import Combined, combined
from cdc_pipeline_tests.histories.encoders import MODES
from cdc_pipeline_tests.histories.history import History, Settings, drawn_settings, history_of

MOST_TRANSACTIONS = 40


@st.composite
def histories(
    draw: DrawFn,
    modes: Sequence[str] = MODES,
    *,
    prefix: str = "h",
    transactions: tuple[int, int] = (5, MOST_TRANSACTIONS),
    settings: Settings | None = None,
    complete: bool = False,
    ambiguous: bool = True,
) -> History:
    """A history of one of the modes. The settings are drawn if not given.

    `complete`: always sends a final watermark above all changes. `ambiguous`: includes what the plain reader cannot resolve.
    """
    choices = Drawn(draw)
    used = settings or drawn_settings(choices, choices.pick(modes), complete=complete, ambiguous=ambiguous)
    return history_of(choices, used, prefix=prefix, transactions=choices.integer(*transactions))


@st.composite
def combinations(
    draw: DrawFn,
    modes: Sequence[str],
    *,
    count: int,
    transactions: tuple[int, int] = (5, 15),
    complete: bool = True,
    ambiguous: bool = True,
) -> Combined:
    """Histories for one run of the pipeline. Either all modes have watermarks or none has."""
    parts = [
        draw(histories(modes, prefix=f"h{number}", transactions=transactions, complete=complete, ambiguous=ambiguous))
        for number in range(count)
    ]
    return combined(parts)


def history_of_seed(
    seed: int,
    *,
    transactions: int,
    mode: str | None = None,
    prefix: str | None = None,
    settings: Settings | None = None,
    kinds: Sequence[str] | None = None,
    complete: bool = False,
    ddl: bool = True,
    partition_ddl: bool = True,
    ambiguous: bool = True,
) -> History:
    """The history of a seed, always the same, on topic `prefix` (default `h<seed>`).

    `complete`: always sends a final watermark above all changes. Without it, the history holds back all of `combined`.
    `ddl`, `partition_ddl`: such statements may occur. `ambiguous`: includes what the plain reader cannot resolve.
    """
    choices = Seeded(seed)
    used = settings or drawn_settings(
        choices,
        mode or choices.pick(MODES),
        seed=seed,
        complete=complete,
        ddl=ddl,
        partition_ddl=partition_ddl,
        ambiguous=ambiguous,
    )
    name = f"h{seed}" if prefix is None else prefix
    return history_of(choices, used, prefix=name, transactions=transactions, kinds=kinds)
