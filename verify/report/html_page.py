"""What all HTML reports share: a page that needs nothing but itself, the verdict on top, facts, tables.

No network, no script, no font. Whatever stood in a store or a history is escaped, and the page's own policy forbids
what an escape might miss.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from typing import Final

from verify.report.html_style import STYLE
from verify.report.text_report import visible

_POLICY: Final = "default-src 'none'; style-src 'unsafe-inline'"
_MARKS: Final = {
    "good": '<circle cx="22" cy="22" r="22"/><path d="M12 23l7 7 13-15"/>',
    "bad": '<circle cx="22" cy="22" r="22"/><path d="M15 15l14 14M29 15L15 29"/>',
    "short": '<circle cx="22" cy="22" r="22"/><path d="M22 11v14M22 32v1"/>',
}


def html_text(value: str) -> str:
    return escape(visible(value))


def html_page(title: str, sections: Iterable[str], style: str = "") -> str:
    """`style`: what this report has beyond all others."""
    body = "\n".join(sections)
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{html_text(title)}</title>\n<style>{STYLE}{style}</style>\n</head>\n<body>\n<main>\n"
        f"{body}\n</main>\n</body>\n</html>\n"
    )


def html_verdict(css: str, headline: str, detail: str) -> str:
    """`css`: good, bad, or short of proving anything."""
    told = f"<p>{html_text(detail)}</p>" if detail else ""
    return (
        f'<section class="verdict {css}"><svg class="mark" viewBox="0 0 44 44" aria-hidden="true">{_MARKS[css]}</svg>'
        f"<div><h1>{html_text(headline)}</h1>{told}</div></section>"
    )


def html_facts(facts: Iterable[tuple[str, str, str]]) -> str:
    """(name, value, what is to be said in small print)."""
    told = "".join(
        f"<div><dt>{name}</dt><dd>{html_text(value)}<small>{html_text(small)}</small></dd></div>"
        for name, value, small in facts
    )
    return f'<dl class="card facts">{told}</dl>'


def html_table(columns: Sequence[tuple[str, str]], rows: Iterable[Sequence[tuple[str, str]]]) -> str:
    """Columns are (CSS class, name), cells (CSS class, HTML). On a phone each row becomes a card."""
    head = "".join(
        f'<th class="{"number" if css == "number" else ""}" scope="col">{name}</th>' for css, name in columns
    )
    body = "".join(
        "<tr>"
        + "".join(
            f'<td class="{css}{"" if html else " none"}" data-label="{name}">{html}</td>'
            for (css, html), (_, name) in zip(row, columns, strict=True)
        )
        + "</tr>"
        for row in rows
    )
    return f'<div class="scroll"><table class="cards"><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'
