from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st

from cdc_pipeline.catalogs.names import catalog_name


@given(st.text(min_size=1, max_size=64))
def test_every_name_is_one_of_hive(name: str) -> None:
    found = catalog_name(name)
    assert re.fullmatch(r"[a-z0-9_]{1,80}", found)
    assert catalog_name(found) == found


def test_plain_names_stay_and_others_differ() -> None:
    assert [catalog_name(name) for name in ("orders", "order_items_2", "7")] == ["orders", "order_items_2", "7"]
    others = ("Orders", "ORDERS", "or ders", "or-ders", "订单", "订", "İ", "`")
    found = [catalog_name(name) for name in others]
    assert len({*found}) == len(others)
    assert catalog_name("Order-Items") == "order_items_21f5372a"
    assert catalog_name("订单") == "name_3d5436ea"
