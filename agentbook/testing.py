"""pytest fixtures for people who test their agents: a real server, a book, audited journals.

Put ``pytest_plugins = ["agentbook.testing"]`` into your ``conftest.py``.
"""

from __future__ import annotations

import os
from collections.abc import Generator
from dataclasses import replace

import pytest

from agentbook.book import Book
from agentbook.book import open as open_book
from agentbook.broker import local
from agentbook.broker.target import Target
from agentbook.settings import Settings

ALL_RUNS = 100_000


@pytest.fixture(scope="session")
def agentbook_server(tmp_path_factory: pytest.TempPathFactory) -> Generator[local.Lease]:
    """A lease on an embedded server of this session's own, without fsync."""
    folder = tmp_path_factory.mktemp("agentbook") / "store"
    lease = local.acquire(Settings(dir=folder, durability="process", server_grace=2.0))
    yield lease
    lease.release()


@pytest.fixture
def nats_server(agentbook_server: local.Lease) -> Target:
    """Where the session's nats-server is."""
    return agentbook_server.target


@pytest.fixture
def agentbook_settings(agentbook_server: local.Lease) -> Settings:
    """Settings of a book on that server: a namespace of its own, and an ack wait of 1 s."""
    return Settings(
        dir=agentbook_server.dir,
        durability="process",
        server_grace=2.0,
        ack_wait=1.0,
        namespace=f"test{os.urandom(4).hex()}",
    )


@pytest.fixture
def book(agentbook_settings: Settings) -> Generator[Book]:
    """An open book. At the end of the test the journal of every run in it is audited."""
    with open_book(settings=agentbook_settings) as opened:
        yield opened
    audit(agentbook_settings)


def audit(settings: Settings) -> None:
    """Fail unless the journal of every run keeps every rule (JOURNAL.md, Check).

    Raises:
        AssertionError: one does not; the text says which rule, and at which record.
    """
    with open_book(settings=replace(settings)) as reader:
        reports = {info.id: reader.get(info.id).check() for info in reader.runs(limit=ALL_RUNS)}
    broken = [f"run {run}: {report}" for run, report in reports.items() if not report]
    assert not broken, "\n".join(broken)
