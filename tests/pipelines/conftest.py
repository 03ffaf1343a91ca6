"""Lets the tests of this folder import their shared helper by name (pytest runs with import-mode importlib)."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
