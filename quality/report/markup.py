"""HTML that cannot be injected into: `el` escapes every child that is not already `Html`."""

from __future__ import annotations

import html
import re
from collections.abc import Iterable

_VOID = frozenset({"br", "img", "input", "link", "meta"})
# controls, text-direction overrides (a file name could lie with them), lone surrogates (names that are not UTF-8)
_UNPRINTABLE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff\ufffe\uffff]"
)


class Html(str):
    """A string that is markup already."""

    __slots__ = ()


Child = str | int | None


def text(value: object) -> Html:
    """Escape for element content and attribute values; characters that hide or reorder text become visible escapes."""
    if isinstance(value, Html):
        return value
    shown = _UNPRINTABLE.sub(lambda match: f"\\u{ord(match[0]):04x}", str(value))
    return Html(html.escape(shown, quote=True))


def prose(sentence: str) -> Html:
    """Text in which `backticks` mark code, as messages and remedies write commands."""
    parts = sentence.split("`")
    if len(parts) % 2 == 0:  # one backtick without a partner is just a character
        return text(sentence)
    return join(el("code", part) if i % 2 else part for i, part in enumerate(parts))


def el(name: str, /, *children: Child, **attributes: object) -> Html:
    """Build one element: `el("p", "a < b", class_="note")`; None children and None or False attributes are left out."""
    parts = [f"<{name}"]
    for key, value in attributes.items():
        if value is None or value is False:
            continue
        key = key.rstrip("_").replace("_", "-")
        parts.append(f" {key}" if value is True else f' {key}="{text(value)}"')
    parts.append(">")
    if name in _VOID:
        return Html("".join(parts))
    parts.extend(text(child) for child in children if child is not None)
    parts.append(f"</{name}>")
    return Html("".join(parts))


def join(parts: Iterable[str | None]) -> Html:
    """Concatenate, escaping what is not markup."""
    return Html("".join(text(part) for part in parts if part is not None))


def table(head: Iterable[str], rows: Iterable[Iterable[Child]], *, caption: str, numeric: Iterable[int] = ()) -> Html:
    """A table that scrolls sideways inside its own box; `numeric` are the indices of right-aligned columns."""
    right = frozenset(numeric)

    def cell(name: str, index: int, child: Child) -> Html:
        scope = "col" if name == "th" else None
        return el(name, child, scope=scope, class_="num" if index in right else None)

    body = join(el("tr", *(cell("td", i, child) for i, child in enumerate(row))) for row in rows)
    header = el("thead", el("tr", *(cell("th", i, title) for i, title in enumerate(head))))
    inner = el("table", el("caption", caption, class_="hidden"), header, el("tbody", body))
    return el("div", inner, class_="scroll", role="region", aria_label=caption, tabindex="0")


def numbers(head: Iterable[str], rows: Iterable[Iterable[Child]], *, caption: str) -> Html:
    """The figures behind a chart, folded away: what a screen reader, or a doubter, wants."""
    head = tuple(head)
    content = table(head, rows, caption=caption, numeric=range(1, len(head)))
    return el("details", el("summary", "The numbers"), content, class_="numbers")
