"""Set-ups of encoders, as in practice."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from cdc_pipeline_tests.histories.choices import Seeded
from cdc_pipeline_tests.histories.encoders import MODES, has_watermarks
from cdc_pipeline_tests.histories.history import History, drawn_settings
from cdc_pipeline_tests.histories.strategies import history_of_seed

TSO_MODES = tuple(mode for mode in MODES if has_watermarks(mode))
TIME_MODES = tuple(mode for mode in MODES if not has_watermarks(mode))
# set-up → its modes, and the settings that are not drawn
SETUPS: Mapping[str, tuple[tuple[str, ...], Mapping[str, Any]]] = {
    "ticdc_extension": (TSO_MODES, {}),
    "ticdc_default": (("default",), {}),
    "canal_one_partition": (("canal",), {"partitions": 1}),
    "canal_hashed": (("canal",), {"partitions": 3, "dispatcher": "key"}),
    "canal_without_numbers": (("canal",), {"numbered": False}),
    "dataworks": (("dataworks",), {}),
}
TOPIC_PER_TABLE = "ticdc_topic_per_table"
_ALL = {**SETUPS, TOPIC_PER_TABLE: (TSO_MODES, {"by_table": True})}


def history_of_setup(
    setup: str,
    seed: int,
    number: int,
    *,
    slices: int | None = None,
    transactions: int = 15,
    prefix: str | None = None,
    replayed: bool = True,
) -> History:
    """A history of the set-up, in so many files. None: in at least two. `number` chooses the mode, if there are several.
    `replayed`: the binlog may be played again."""
    modes, fixed = _ALL[setup]
    drawn = drawn_settings(Seeded(seed), modes[number % len(modes)], seed=seed, complete=True)
    used = replace(drawn, slices=slices or max(2, drawn.slices), replayed=drawn.replayed and replayed, **fixed)
    return history_of_seed(seed, transactions=transactions, settings=used, prefix=prefix)
