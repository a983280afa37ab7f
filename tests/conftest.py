"""A real server for the session, a fresh namespace for each test, and skips that CI does not accept."""

from __future__ import annotations

import os
import re
from contextlib import ExitStack
from dataclasses import replace

import pytest
from nats_servers import NatsServer

from agentbook.book import open as open_book
from agentbook.broker.connection import connect
from agentbook.broker.streams import layout, stream_name
from agentbook.settings import Settings

pytest_plugins = ["agentbook.testing"]


@pytest.fixture(scope="session")
def anyio_backend():
    return "asyncio"


@pytest.fixture(scope="session")
def server(agentbook_server):
    """A lease on an embedded server of this session's own."""
    return agentbook_server


@pytest.fixture
def settings(agentbook_settings):
    """Settings of a book on the session's server, with a namespace of its own and short waits."""
    return agentbook_settings


@pytest.fixture
def new_book(agentbook_settings):
    """Opens books on the test's server, with settings changed as given; at the end every run in them is audited."""
    from agentbook.testing import audit  # not before the plugin of that name is loaded

    with ExitStack() as books:
        yield lambda **more: books.enter_context(open_book(settings=replace(agentbook_settings, **more)))
    audit(agentbook_settings)


@pytest.fixture
async def connection(server, settings):
    """A connection with every stream provisioned; the streams are deleted afterwards."""
    connection = await connect(server.target, settings, provision=True)
    yield connection
    for base in layout(connection.names):
        await connection.api.once(f"STREAM.DELETE.{stream_name(connection.names, base)}")
    await connection.close()


@pytest.fixture
def own_server(tmp_path):
    """A server of the test's own, which it may kill and start again: no keeper does."""
    server = NatsServer(tmp_path / "nats").start()
    server.settings = Settings(namespace=f"t{os.urandom(4).hex()}", ack_wait=1)
    yield server
    server.kill()


def _required(report) -> str | None:
    """The thing a skip was for, if `AGENTBOOK_REQUIRE` names it."""
    if not report.skipped or hasattr(report, "wasxfail"):
        return None
    reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
    names = [name.strip() for name in os.environ.get("AGENTBOOK_REQUIRE", "").split(",") if name.strip()]
    return next((name for name in names if re.search(rf"\b{re.escape(name)}\b", reason, re.IGNORECASE)), None)


def _refuse(report) -> None:
    if (name := _required(report)) is not None:
        report.outcome = "failed"
        report.longrepr = f"AGENTBOOK_REQUIRE names {name!r}, yet: {report.longrepr}"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    report = yield
    _refuse(report)
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(collector):
    report = yield
    _refuse(report)
    return report
