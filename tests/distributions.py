"""Builds what is published, from this tree or from another one."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]


def build(source: Path, kind: str, into: Path) -> Path:
    """Build one distribution of a source tree, without the network."""
    command = [sys.executable, "-m", "hatchling", "build", "--target", kind, "--directory", str(into)]
    subprocess.run(command, cwd=source, check=True, capture_output=True, text=True)
    (built,) = into.glob("*.whl" if kind == "wheel" else "*.tar.gz")
    return built
