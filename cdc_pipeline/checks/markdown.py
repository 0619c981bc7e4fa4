"""Text from upstream in descriptions, which Dagster's UI renders as GitHub's Markdown.

Descriptions of assets, of columns in a column schema and of check results are Markdown. Metadata, other than
`MetadataValue.md`, names, tags and descriptions of failures are plain text.
"""

from __future__ import annotations

import re


def code_span(text: object) -> str:
    """The text as one code span, in one line: no link, image or HTML of it is rendered.

    Escaped text would not do: GitHub's Markdown also links the addresses in it.
    """
    content = " ".join(str(text).split())
    if content.startswith("`") or content.endswith("`") or not content:
        content = f" {content} "
    fence = "`" * (max(map(len, re.findall("`+", content)), default=0) + 1)
    return f"{fence}{content}{fence}"
