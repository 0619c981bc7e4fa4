"""Which tables of a capture of many types a test takes, where it does not take all."""

from __future__ import annotations

# Three captures have the same tables, as several settings of the changefeed send them. In `make test` each has a part of
# them, with every message, and together they have all; in `make test-long` each has all.
_OF_MANY_STATEMENTS = frozenset(("evolve", "evolved", "evolved2", "part", "part_x", "part_h"))


PART = frozenset(("all_types", "defaults", "no_pk", "cpk_nc", "", *_OF_MANY_STATEMENTS))
