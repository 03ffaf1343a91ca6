"""A cheap guess of a text's language: its script, and for Latin script the most frequent small words.

What it is: the share of letters in each Unicode block decides the script; of Latin texts the language is the one of
eleven European languages of whose 30 or so commonest words the text has most. What it is not: it tells no language
within other scripts (Russian from Bulgarian, Chinese from Japanese kanji), and of a caption of three words often
nothing ("undetermined"). It is for shares over thousands of captions, not for one.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable

WORDS = {
    "english": "the of and a to in is on with for at by an it this that from are as his her two man woman near while",
    "german": "der die das und ein eine einen einem einer mit auf ist im in den dem von zu für nicht sich auch vor",
    "french": "le la les un une des du de et est dans sur avec pour par en au aux qui que son sa deux il elle sont pas",
    "spanish": "el la los las un una de del y en con por para es que su se al dos sobre como está hombre mujer una lo",
    "italian": "il lo la gli le un una di del della e in con per su che è si al da nel sono due dei uomo donna alla",
    "portuguese": "o a os as um uma de do da dos das e em no na com por para que é se ao dois sobre homem mulher não",
    "dutch": "de het een en van in op met is voor te aan zijn die dat niet bij naar twee man vrouw om uit er staat",
    "swedish": "en ett och i på med av är som för till det den att två har om från vid man kvinna inte står sitter",
    "danish": "en et og i på med af er som for til det den at to har om fra ved mand kvinde ikke står sidder der",
    "polish": "w i na z do się jest nie to że o od po za przez dwa dwie oraz przy dla ma są mężczyzna kobieta ze",
    "turkish": "bir ve bu ile için da de çok olan iki adam kadın üzerinde olarak gibi daha var ne o en içinde yanında",
}
"""The words of each language by which it is told."""

_SCRIPTS = (
    ("greek", "\u0370-\u03ff"), ("cyrillic", "\u0400-\u052f"), ("hebrew", "\u0590-\u05ff"), ("arabic", "\u0600-\u06ff"),
    ("devanagari", "\u0900-\u097f"), ("bengali", "\u0980-\u09ff"), ("tamil", "\u0b80-\u0bff"),
    ("thai", "\u0e00-\u0e7f"),
    ("japanese", "\u3040-\u30ff"), ("han", "\u3400-\u9fff"), ("hangul", "\uac00-\ud7af"),
    ("latin", "A-Za-z\u00c0-\u024f\u1e00-\u1eff"),
)  # fmt: skip
_PATTERNS = tuple((name, re.compile(f"[{block}]")) for name, block in _SCRIPTS)
_WORD = re.compile(r"[^\W\d_]+")
_OF_WORD: dict[str, tuple[str, ...]] = {
    word: tuple(language for language, words in WORDS.items() if word in words.split())
    for word in {w for words in WORDS.values() for w in words.split()}
}


def script(text: str) -> str:
    """The script that most letters are of; "undetermined" without letters."""
    counts = {name: len(pattern.findall(text)) for name, pattern in _PATTERNS}
    if counts["japanese"]:
        counts["japanese"] += counts.pop("han")  # kana occur in Japanese only, and never alone
    best = max(counts, key=lambda name: counts[name])
    return best if counts[best] else "undetermined"


def language(text: str) -> str:
    """A language for Latin script, else the script, else "undetermined"."""
    found = script(text)
    if found != "latin":
        return found
    scores: dict[str, float] = {}
    for word in _WORD.findall(text.lower()):
        owners = _OF_WORD.get(word, ())
        for owner in owners:
            scores[owner] = scores.get(owner, 0.0) + 1 / len(owners)  # a word of many languages says little
    best = max(scores.values(), default=0.0)
    leading = [name for name, score in scores.items() if score == best]
    return leading[0] if len(leading) == 1 else "undetermined"


def shares(texts: Iterable[str]) -> dict[str, int]:
    """How many texts are of each language, the most frequent first."""
    return dict(Counter(map(language, texts)).most_common())
