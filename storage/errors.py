"""The one error type that users see: what was found, where, what was expected, what to do."""

from __future__ import annotations


class SevenfoldError(Exception):
    """A problem the user can act on; the command line prints it without a traceback.

    Parameters
    ----------
    found : what was found, in plain words.
    where : the file, key, member or field it was found in.
    expected : what should have been there.
    do : the next step that mends it.
    """

    def __init__(self, found: str, *, where: str = "", expected: str = "", do: str = "") -> None:
        self.found, self.where, self.expected, self.do = found, where, expected, do
        parts = [f"{where}: {found}" if where else found]
        if expected:
            parts.append(f"expected: {expected}")
        if do:
            parts.append(f"what to do: {do}")
        super().__init__("\n  ".join(parts))
