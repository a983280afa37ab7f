"""X4: a folder that cannot be used is told in one line that says so and what to do."""

import asyncio
import contextlib
import os
import re
import subprocess
import sys

import pytest
from nats_servers import NatsServer
from processes import python, wait_until

from agentbook.broker import local
from agentbook.broker.connection import connect
from agentbook.broker.folder import Folder
from agentbook.broker.outcomes import Ack, StreamFull, Undecided
from agentbook.errors import StoreUnavailable
from agentbook.settings import Settings

pytestmark = pytest.mark.live


def refused(folder):
    with pytest.raises(StoreUnavailable) as refusal:
        local.acquire(Settings(dir=folder, durability="process", server_grace=0.2))
    text = str(refusal.value)
    assert "\n" not in text
    assert re.search(r"dir=…|free some|make it writable", text), text
    wait_until(lambda: not Folder(folder).path.is_dir() or not Folder(folder).locked())
    return text


@pytest.fixture
def mounted(tmp_path):
    """Mount a small file system at a folder, where we may."""
    mounts = []

    def mount(options):
        place = tmp_path / "mount"
        place.mkdir(exist_ok=True)
        if sys.platform != "linux" or os.getuid() != 0:
            pytest.skip("only root can mount a file system")
        done = subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", place], capture_output=True, check=False)
        if done.returncode:
            pytest.skip("this machine does not let us mount a file system")
        mounts.append(place)
        return place

    yield mount
    for place in mounts:
        subprocess.run(["umount", place], check=True)


def test_x4_a_folder_that_is_a_file(tmp_path):
    place = tmp_path / "book"
    place.write_text("")
    assert f"{place} is a file" in refused(place)
    assert f"{place} is a file" in refused(place / "below")


def test_x4_a_read_only_folder(mounted):
    place = mounted("ro,size=64m")
    assert "read-only" in refused(place)
    assert "read-only" in refused(place / "book")


@pytest.mark.skipif(os.getuid() == 0, reason="root may write anywhere")
def test_x4_a_folder_without_permission(tmp_path):
    tmp_path.chmod(0o500)
    assert "read-only" in refused(tmp_path / "book")


def test_x4_a_nearly_full_disk(mounted):
    text = refused(mounted("size=2m") / "book")
    assert "full" in text
    assert "2.1 MB are free" in text


def test_x4_a_full_disk(mounted):
    place = mounted("size=64m")
    fill(place)
    assert "full" in refused(place / "book")


def fill(place):
    """Fill a disk to its last byte."""
    with (place / "filler").open("wb", buffering=0) as filler, contextlib.suppress(OSError):
        while filler.write(b"x" * 4096) == 4096:
            pass


@pytest.mark.anyio
async def test_x2_a_disk_that_fills_up_is_told_and_once_there_is_room_the_journal_goes_on(mounted):
    place = mounted("size=40m")
    settings = Settings(dir=place / "book", durability="process", server_grace=0.2, append_deadline=20)
    lease = local.acquire(settings)
    try:
        connection = await connect(lease.target, settings, provision=True)
        subject = connection.names.journal("r", "s")
        first = await connection.publish(subject, b"1", expect=0, msg_id="c.0")
        fill(place)
        with pytest.raises(Undecided, match=f"the disk of {settings.dir} is full: free some space"):
            await connection.publish_decided(subject, os.urandom(9000), expect=first.seq, msg_id="c.1", deadline=1)
        wait_until(lambda: "is full" in local.status(settings).trouble)
        (place / "filler").unlink()
        second = await connection.publish_decided(subject, os.urandom(9000), expect=first.seq, msg_id="c.1")
        assert second.seq == first.seq + 1
        assert local.status(settings).trouble == ""
        await connection.close()
    finally:
        lease.release()
        wait_until(lambda: not Folder(settings.dir).locked())


@pytest.mark.anyio
async def test_x2_a_server_at_its_storage_limit_is_a_full_stream(tmp_path):
    server = NatsServer(tmp_path, jetstream="max_file_store: 20K").start()
    try:
        connection = await connect(server.target, Settings(), provision=True)
        outcomes = await asyncio.gather(
            *(connection.publish(connection.names.journal("r", "s"), os.urandom(900)) for _ in range(60)),
            return_exceptions=True,
        )
        assert isinstance(outcomes[0], Ack)
        assert isinstance(outcomes[-1], StreamFull)
        await connection.close()
    finally:
        server.kill()


@pytest.mark.anyio
@pytest.mark.parametrize("used", [False, True])
async def test_x4_a_store_in_use_by_another_server(tmp_path, used):
    place, elsewhere = tmp_path / "book", tmp_path / "elsewhere"
    elsewhere.mkdir()
    if used:
        # Told by its open files: its configuration names another path to the same store.
        place.mkdir()
        (elsewhere / "link").symlink_to(place)
        other = NatsServer(elsewhere, f'jetstream {{ store_dir: "{elsewhere / "link"}" }}', enabled=False).start()
        await (await connect(other.target, Settings(), provision=True)).close()
    else:
        other = NatsServer(place).start()
    try:
        assert f"in use by another server (process {other.pid})" in refused(place)
    finally:
        other.kill()


def test_x4_a_folder_whose_keeper_does_not_answer(tmp_path, monkeypatch):
    monkeypatch.setattr(local, "_START", 0.5)
    place = tmp_path / "book"
    code = """
import sys, time
from pathlib import Path
from agentbook.broker.folder import Folder
folder = Folder(Path(sys.argv[1]))
folder.prepare()
folder.lock()
print(flush=True)
time.sleep(600)
"""
    with python(code, str(place)) as wedged:
        wedged.stdout.readline()
        with pytest.raises(StoreUnavailable, match="in use by another server"):
            local.acquire(Settings(dir=place))
    wait_until(lambda: not Folder(place).locked())
