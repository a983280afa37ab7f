"""Each thing a book depends on is looked at, with what to do where it is not well."""

import asyncio
import os
import signal

import pytest
from nats_servers import NatsServer
from processes import wait_until

from agentbook.broker import local
from agentbook.broker.connection import connect
from agentbook.broker.doctor import doctor
from agentbook.broker.names import JOURNAL
from agentbook.settings import Settings

pytestmark = pytest.mark.live


@pytest.fixture
def settings(tmp_path):
    settings = Settings(dir=tmp_path / "book", durability="process", server_grace=0.3)
    yield settings
    local.down(settings, force=True)


def examine(settings, url=None, **more):
    checks = asyncio.run(doctor(settings, url, **more))
    assert all(check.advice for check in checks if check.verdict == "fail"), checks
    return {check.name: check for check in checks}


def test_a_folder_before_its_first_open_is_well_and_stays_untouched(settings):
    checks = examine(settings)
    assert {name: check.verdict for name, check in checks.items()} == {
        "binary": "ok", "folder": "ok", "disk": "ok", "keeper": "warn",
    }  # fmt: skip
    assert not settings.dir.exists()


def test_a_server_that_is_started_for_the_look_is_given_back(settings):
    checks = examine(settings, start=True)
    assert list(checks) == ["binary", "folder", "disk", "keeper", "server", "durability", "connection", "streams"]
    assert not [check for check in checks.values() if check.verdict == "fail"]
    wait_until(lambda: local.status(settings) is None)


def test_a_server_in_use_is_described_with_its_restarts_durability_streams_and_clock(settings):
    lease = local.acquire(settings)
    asyncio.run(opened(lease.target, settings))
    checks = examine(settings)
    assert "1 lease" in checks["keeper"].found
    assert checks["server"].verdict == "ok"
    assert checks["durability"].verdict == "warn"
    assert "power cut" in checks["durability"].found
    assert checks["streams"].found == "all 9 there, with the right properties"
    assert checks["clock"].verdict == "ok"
    killed = lease.server_pid()
    os.kill(killed, signal.SIGKILL)
    wait_until(lambda: lease.server_pid() not in (None, killed))
    assert "restarted 1 times" in examine(settings)["server"].found
    lease.release()


def test_a_stream_that_does_not_fit_fails_by_name(settings):
    lease = local.acquire(settings)

    async def spoil(connection):
        config = (await connection.info(JOURNAL))["config"]
        await connection.api.call(f"STREAM.UPDATE.{JOURNAL}", {**config, "max_age": 86_400 * 10**9})

    asyncio.run(opened(lease.target, settings, spoil))
    check = examine(settings)["streams"]
    assert check.verdict == "fail"
    assert "AGENT_JOURNAL (max_age" in check.found
    lease.release()


def test_a_folder_that_is_a_file_fails_before_anything_is_started(settings):
    settings.dir.write_text("")
    checks = examine(settings, start=True)
    assert checks["folder"].verdict == "fail"
    assert "is a file" in checks["folder"].found
    assert "keeper" not in checks
    settings.dir.unlink()


def test_a_url_is_looked_at_without_the_folder(settings, tmp_path):
    server = NatsServer(tmp_path / "nats").start()
    try:
        checks = examine(settings, f"localhost:{server.port}")
        assert {name: check.verdict for name, check in checks.items()} == {
            "connection": "ok", "durability": "warn", "streams": "ok",
        }  # fmt: skip
    finally:
        server.kill()
    assert "connection refused" in examine(settings, f"localhost:{server.port}")["connection"].found
    assert examine(settings, "http://x")["url"].verdict == "fail"


async def opened(target, settings, then=None):
    connection = await connect(target, settings, provision=True)
    if then is not None:
        await then(connection)
    await connection.close()
