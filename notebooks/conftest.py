"""Each notebook gets a store of its own, new and empty, so that it says the same every time."""

from __future__ import annotations

import os
import shutil
import tempfile
from dataclasses import replace
from pathlib import Path

import pytest

from agentbook.broker import local
from agentbook.settings import Settings

_DIR = "AGENTBOOK_DIR"
_stores: dict[Path, Path] = {}


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Before the first cell of a notebook; fixtures do not run for nbval's cells, its kernel inherits this."""
    if item.path.suffix == ".ipynb" and item.path not in _stores:
        _stores[item.path] = Path(tempfile.mkdtemp(prefix="agentbook-nb-"))
    if item.path in _stores:
        os.environ[_DIR] = str(_stores[item.path] / "store")
        # nbval ends kernels with SIGKILL: what they leave behind ends by itself soon after.
        os.environ["AGENTBOOK_SERVER_GRACE"] = "2"


def pytest_unconfigure() -> None:
    """Stop what the notebooks started, and remove their stores."""
    for store in _stores.values():
        local.down(replace(Settings(), dir=store / "store"), force=True)
        shutil.rmtree(store, ignore_errors=True)
    _stores.clear()
