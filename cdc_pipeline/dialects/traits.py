"""All dialects, and their traits: what mirrors do differently for them."""

from __future__ import annotations

from pyspark.sql import Column, Row
from pyspark.sql import functions as F

from cdc_pipeline.dialects.canal import CANAL
from cdc_pipeline.dialects.dataworks import DATAWORKS
from cdc_pipeline.dialects.dialect import Trait, user_quotings
from cdc_pipeline.dialects.ticdc import TICDC
from cdc_pipeline.mysql.ddl.tokens import Quoting

__all__ = ["Trait", "dialect_has_trait", "dialects_with_trait", "has_trait", "statement_quotings", "trait_sql"]

DIALECTS = (DATAWORKS, TICDC, CANAL)
"""In the order in which a message is matched. The last dialect matches every message."""
BY_NAME = {dialect.name: dialect for dialect in DIALECTS}


def dialects_with_trait(trait: Trait) -> tuple[str, ...]:
    """The names of the dialects that have the trait."""
    return tuple(dialect.name for dialect in DIALECTS if trait in dialect.traits)


def dialect_has_trait(name: str, trait: Trait) -> bool:
    """Whether the dialect `name` has the trait."""
    return name in dialects_with_trait(trait)


def has_trait(trait: Trait) -> Column:
    """Whether the dialect in the column `dialect` has the trait."""
    names = dialects_with_trait(trait)
    return F.col("dialect") == names[0] if len(names) == 1 else F.col("dialect").isin(*names)


def trait_sql(trait: Trait) -> str:
    """SQL of `has_trait`."""
    names = ", ".join(f"'{name}'" for name in dialects_with_trait(trait))
    return f"dialect = {names}" if len(dialects_with_trait(trait)) == 1 else f"dialect IN ({names})"


def statement_quotings(event: Row) -> tuple[Quoting, ...]:
    """Who may have written the strings of a statement: of a row of `unified.ddl_events` or of `ddl_history`."""
    dialect = BY_NAME.get(event["dialect"])
    return user_quotings(event) if dialect is None else dialect.quotings(event)
