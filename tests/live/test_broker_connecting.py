"""X3: a server that cannot serve is told in one line that says what is wrong and what to do."""

import asyncio
import contextlib
import shutil
import socket
import subprocess
import time

import pytest
from nats_servers import NatsServer

from agentbook.broker import streams
from agentbook.broker.connection import connect
from agentbook.broker.names import JOURNAL, MEMO, PAYLOADS, TIMERS
from agentbook.broker.streams import layout, provision, stream_name
from agentbook.broker.url import parse
from agentbook.errors import ConfigError, JetStreamDisabled, ServerError, ServerNotFound, ServerTooOld
from agentbook.settings import Settings

pytestmark = [pytest.mark.live, pytest.mark.anyio]


async def refused(url, kind=ServerError):
    before = asyncio.all_tasks()
    began = time.monotonic()
    with pytest.raises(kind) as refusal:
        await connect(parse(url), Settings())
    text = str(refusal.value)
    assert "\n" not in text
    assert "secret" not in text
    assert time.monotonic() - began < 7
    # A listener of the test notices our end a moment later.
    async with asyncio.timeout(2):
        while asyncio.all_tasks() != before:  # noqa: ASYNC110 - tasks set no event
            await asyncio.sleep(0.01)
    return text


@contextlib.asynccontextmanager
async def connected(url):
    connection = await connect(parse(url), Settings())
    try:
        yield connection
    finally:
        await connection.close()


@contextlib.asynccontextmanager
async def listener(greeting):
    """Something else than a server of ours that listens."""

    async def greet(reader, writer):
        writer.write(greeting)
        await writer.drain()
        await reader.read()
        writer.close()

    server = await asyncio.start_server(greet, "127.0.0.1", 0)
    async with server:
        yield f"127.0.0.1:{server.sockets[0].getsockname()[1]}"


@pytest.fixture
def protected(tmp_path):
    server = NatsServer(tmp_path, 'authorization { user: bob, password: "se/cret" }').start()
    yield server
    server.kill()


async def test_x3_no_scheme_and_localhost(own_server):
    async with connected(f"localhost:{own_server.port}") as connection:
        assert connection.connected


async def test_x3_nothing_listens(free_tcp_port):
    text = await refused(f"nats://127.0.0.1:{free_tcp_port}", ServerNotFound)
    assert f"no server at nats://127.0.0.1:{free_tcp_port} (connection refused)" in text
    assert "leave the URL out" in text


async def test_x3_an_unknown_host():
    assert "is unknown" in await refused("nats://no-such-host.invalid:4222", ServerNotFound)


async def test_x3_a_list_of_which_one_answers(own_server, free_tcp_port):
    began = time.monotonic()
    async with connected(f"127.0.0.1:{free_tcp_port},127.0.0.1:{own_server.port}") as connection:
        assert connection.connected
    assert time.monotonic() - began < 1


async def test_x3_a_list_of_which_none_answers_says_why_of_each(free_tcp_port, protected):
    text = await refused(f"127.0.0.1:{free_tcp_port},127.0.0.1:{protected.port}")
    assert f"{free_tcp_port} (connection refused)" in text
    assert f"{protected.port} refuses us" in text


async def test_x3_credentials_in_the_url_with_encoded_characters(protected):
    async with connected(f"nats://bob:se%2Fcret@127.0.0.1:{protected.port}") as connection:
        assert "cret" not in connection.url


async def test_x3_a_wrong_password(protected, capfd):
    text = await refused(f"nats://bob:wrong-secret@127.0.0.1:{protected.port}")
    assert "refuses user 'bob'" in text
    assert capfd.readouterr() == ("", "")


async def test_x3_no_credentials(protected):
    assert "refuses us without credentials" in await refused(f"127.0.0.1:{protected.port}")


async def test_x3_a_token(tmp_path):
    server = NatsServer(tmp_path, "authorization { token: t0ken }").start()
    try:
        async with connected(f"nats://t0ken@127.0.0.1:{server.port}") as connection:
            assert connection.connected
        assert "refuses this token" in await refused(f"nats://other@127.0.0.1:{server.port}")
    finally:
        server.kill()


@pytest.mark.skipif(not socket.has_ipv6, reason="no IPv6")
async def test_x3_ipv6(tmp_path):
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        pytest.skip("no IPv6 on loopback")
    server = NatsServer(tmp_path, 'listen: "[::1]:-1"').start()
    try:
        async with connected(f"nats://[::1]:{server.port}") as connection:
            assert connection.connected
    finally:
        server.kill()


async def test_x3_a_server_without_jetstream(tmp_path):
    server = NatsServer(tmp_path, enabled=False).start()
    try:
        text = await refused(f"127.0.0.1:{server.port}", JetStreamDisabled)
        assert "nats-server -js" in text
    finally:
        server.kill()


async def test_x3_an_account_without_jetstream(tmp_path):
    accounts = """accounts {
        WITHOUT { users: [{ user: bob, password: p }] }
        WITH { jetstream: enabled, users: [{ user: eve, password: p }] } }"""
    server = NatsServer(tmp_path, accounts).start()
    try:
        await refused(f"bob:p@127.0.0.1:{server.port}", JetStreamDisabled)
        async with connected(f"eve:p@127.0.0.1:{server.port}") as connection:
            assert connection.connected
    finally:
        server.kill()


async def test_x3_too_old_a_server_is_told_with_both_versions():
    info = b'INFO {"version":"2.11.4","max_payload":1048576,"headers":true,"jetstream":true}\r\nPONG\r\n'
    async with listener(info) as address:
        text = await refused(address, ServerTooOld)
    assert "2.11.4" in text
    assert "2.12" in text


async def test_x3_what_listens_is_no_nats_server():
    async with listener(b"SSH-2.0-OpenSSH_9.6\r\n") as address:
        assert "is not a NATS server" in await refused(address)


async def test_x3_what_listens_says_nothing(monkeypatch):
    monkeypatch.setattr("agentbook.broker.connection._CONNECT", 0.3)
    async with listener(b"") as address:
        assert "answers like a NATS server within 0.3 s" in await refused(address, ServerNotFound)


async def test_x3_tls_to_a_server_without_it_sends_no_password(protected):
    assert "does not require TLS" in await refused(f"tls://bob:secret@127.0.0.1:{protected.port}")


@pytest.fixture
def certificate(tmp_path):
    """A self-signed certificate for loopback; its key lies beside it."""
    key, certificate = tmp_path / "key.pem", tmp_path / "cert.pem"
    if shutil.which("openssl") is None:
        pytest.skip("no openssl to make a certificate with")
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2",
         "-keyout", key, "-out", certificate, "-subj", "/CN=localhost",
         "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"],
        capture_output=True, check=True,
    )  # fmt: skip
    return certificate


async def test_x3_tls(tmp_path, certificate, monkeypatch):
    key = certificate.with_name("key.pem")
    server = NatsServer(tmp_path / "nats", f'tls {{ cert_file: "{certificate}", key_file: "{key}" }}').start()
    try:
        text = await refused(f"tls://127.0.0.1:{server.port}")
        assert "is not trusted" in text
        assert "SSL_CERT_FILE" in text
        monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
        for scheme in ("tls", "nats"):
            async with connected(f"{scheme}://127.0.0.1:{server.port}") as connection:
                assert connection.connected
    finally:
        server.kill()


async def test_two_books_provision_at_once(own_server):
    settings = own_server.settings
    connections = await asyncio.gather(
        *(connect(own_server.target, settings, provision=True) for _ in range(4)),
    )
    for connection in connections:
        await provision(connection)
        await connection.close()


async def test_every_stream_is_made_as_designed(connection):
    for base, wanted in layout(connection.names).items():
        stream = stream_name(connection.names, base)
        config = (await connection.api.call(f"STREAM.INFO.{stream}"))["config"]
        for name, value in {"storage": "file", "compression": "s2", "num_replicas": 1, **wanted}.items():
            assert config.get(name, type(value)()) == value, (stream, name)
    journal = (await connection.info(JOURNAL))["config"]
    assert journal["retention"] == "limits"
    assert not journal.get("deny_purge")
    timers = (await connection.info(TIMERS))["config"]
    assert (timers["retention"], timers["allow_msg_schedules"]) == ("workqueue", True)


async def test_a_stream_that_another_book_made_meanwhile_is_taken_as_it_is(connection, monkeypatch):
    stream = connection.names.stream(JOURNAL)
    config = (await connection.info(JOURNAL))["config"]
    await connection.api.call(f"STREAM.UPDATE.{stream}", {**config, "max_bytes": 10**9})
    real, asked = streams._config, []

    async def too_early(connection, name):
        asked.append(name)
        return None if asked.count(name) == 1 else await real(connection, name)

    monkeypatch.setattr(streams, "_config", too_early)
    await provision(connection)
    assert (await connection.info(JOURNAL))["config"]["max_bytes"] == 10**9


async def test_namespaces_share_nothing(own_server):
    one = await connect(own_server.target, Settings(namespace="one"), provision=True)
    two = await connect(own_server.target, Settings(namespace="two"), provision=True)
    plain = await connect(own_server.target, Settings(), provision=True)
    for connection in (one, two, plain):
        await connection.publish(connection.names.journal("r", "s"), b"x", expect=0)
    for connection in (one, two, plain):
        assert await connection.count(JOURNAL, connection.names.journal("r", "s")) == 1
        await connection.close()


async def test_a_stream_that_does_not_fit_is_refused_by_name_and_property(connection):
    stream = connection.names.stream(JOURNAL)
    config = (await connection.info(JOURNAL))["config"]
    await connection.api.call(f"STREAM.UPDATE.{stream}", {**config, "max_age": 86_400 * 10**9})
    with pytest.raises(ConfigError, match=rf"{stream} exists and does not fit: max_age"):
        await provision(connection)


async def test_limits_and_replicas_of_a_stream_are_its_operators(connection):
    stream = connection.names.stream(JOURNAL)
    config = (await connection.info(JOURNAL))["config"]
    await connection.api.call(f"STREAM.UPDATE.{stream}", {**config, "max_bytes": 10**9})
    await provision(connection)
    assert (await connection.info(JOURNAL))["config"]["max_bytes"] == 10**9


async def test_a_newer_memo_replaces_the_older(connection):
    memo = connection.names.memo("r", "s")
    await connection.publish(memo, b"1")
    await connection.publish(memo, b"2")
    assert await connection.count(MEMO, memo) == 1


async def test_the_payload_bucket_is_an_object_store_for_every_client(own_server):
    import nats

    connection = await connect(own_server.target, own_server.settings, provision=True)
    client = await nats.connect(own_server.target.url)
    bucket = await client.jetstream().object_store(connection.names.stream(PAYLOADS))
    await bucket.put("r/abc", b"x" * 300_000)
    assert (await bucket.get("r/abc")).data == b"x" * 300_000
    await client.close()
    await connection.close()


async def test_a_schedule_fires_in_the_timers_stream(connection):
    timer, wake = connection.names.timer("r", "s", "sleep", 1), connection.names.wake("r", "s")
    await connection.publish(
        timer,
        b"wake up",
        headers={"Nats-Schedule": "@at 2020-01-01T00:00:00Z", "Nats-Schedule-Target": wake},
    )
    await connection.ensure_consumer(TIMERS, "engine", filters=[connection.names.subject("wake", ">")], ack_wait=1)
    puller = await connection.pull(TIMERS, "engine")
    (delivery,) = await puller.fetch(1, 5)
    assert (delivery.subject, delivery.data) == (wake, b"wake up")
    await delivery.ack()
    await puller.close()
