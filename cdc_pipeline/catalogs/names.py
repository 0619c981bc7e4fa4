"""Names that every catalog accepts."""

from __future__ import annotations

import hashlib
import re

_PLAIN = re.compile(r"[a-z0-9_]+")


def catalog_name(name: str) -> str:
    """The name itself if it has lower-case letters, digits and `_` only, as Hive stores names. Else its letters with a
    digest, because other names may have the same letters: `Order-Items` becomes `order_items_21f5372a`."""
    if _PLAIN.fullmatch(name):
        return name
    letters = re.sub(r"[^a-z0-9_]+", "_", name.lower()).strip("_") or "name"
    return f"{letters}_{hashlib.sha256(name.encode()).hexdigest()[:8]}"
