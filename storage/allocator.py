"""How this process gets memory for pictures: kept between them, where the C library can.

By default glibc gives the memory of every larger array back to the system and asks for it anew, a page at a time; for
photographs that is a fifth of the time of decoding them. What is kept is bounded: KEPT at the top of the heap, and
arrays over LARGE never are.
"""

from __future__ import annotations

import ctypes

KEPT = 256 << 20
LARGE = 32 << 20

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
"""Of mallopt(3)."""


def keep_memory() -> bool:
    """For a process that decodes many pictures; False where the C library is another one."""
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError):  # musl, macOS
        return False
    return bool(mallopt(_TRIM_THRESHOLD, KEPT)) and bool(mallopt(_MMAP_THRESHOLD, LARGE))
