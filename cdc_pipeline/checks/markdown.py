"""Text from upstream in descriptions, which Dagster's UI renders as GitHub's Markdown.

Descriptions of assets, of columns in a column schema and of check results are Markdown. Metadata, other than
`MetadataValue.md`, names, tags and descriptions of failures are plain text.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import dagster as dg

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


def code_span(text: object) -> str:
    """The text as one code span, in one line: no link, image or HTML of it is rendered.

    Escaped text would not do: GitHub's Markdown also links the addresses in it.
    """
    content = " ".join(str(text).split())
    if content.startswith("`") or content.endswith("`") or not content:
        content = f" {content} "
    fence = "`" * (max(map(len, re.findall("`+", content)), default=0) + 1)
    return f"{fence}{content}{fence}"


def check_result(
    name: str,
    key: dg.AssetKey,
    problems: Iterable[str],
    advice: str,
    metadata: Mapping[str, Any],
    *,
    is_error: bool = False,
) -> dg.AssetCheckResult:
    """The result of a check, which passes without problems. `is_error`: it fails, if not it warns.

    `problems` may quote upstream, `advice` must not.
    """
    found = list(problems)
    description = f"{code_span('; '.join(found))}. {advice}".removesuffix(". ")
    return dg.AssetCheckResult(
        check_name=name,
        asset_key=key,
        passed=not found,
        severity=dg.AssetCheckSeverity.ERROR if is_error else dg.AssetCheckSeverity.WARN,
        description=description if found else None,
        metadata=metadata,
    )
