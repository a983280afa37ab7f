"""A run as a file: JSON lines with its records and their large values, readable without a server."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import cast

from pydantic_core import from_json, to_json

from agentbook import codec
from agentbook.book.info import RunInfo, info_of
from agentbook.book.reading import Readable
from agentbook.errors import FormatVersion, JournalError
from agentbook.journal.check import CheckReport, check
from agentbook.journal.records import Commit, Record, decode
from agentbook.journal.spill import filled_from, references
from agentbook.protocol.snapshot import RunSnapshot
from agentbook.views.facts import RunFacts

VERSION = 1

Json = dict[str, object]


def write(path: Path, snapshot: RunSnapshot, records: Iterable[Record], blobs: dict[str, bytes]) -> None:
    """Write a run to a file, whole or not at all.

    The first line is a header with the run's snapshot, then one line for each large value and
    each record.
    """
    lines: list[object] = [{"agentbook": VERSION, "run": snapshot.run, "snapshot": snapshot.model_dump(mode="json")}]
    lines += [{"blob": digest, "data": base64.b64encode(data).decode()} for digest, data in blobs.items()]
    lines += [{"seq": record.seq, "record": from_json(record.encode())} for record in records]
    unfinished = path.with_name(f"{path.name}.part")
    unfinished.write_bytes(b"".join(to_json(line) + b"\n" for line in lines))
    unfinished.replace(path)


class LoadedRun(Readable):
    """A run read from a file. It can be looked at and audited, and needs no server.

    Attributes:
        snapshot: what the engine knew of it.
    """

    def __init__(self, snapshot: RunSnapshot, records: list[Record], blobs: dict[str, bytes]) -> None:
        self.id = snapshot.run
        self.snapshot = snapshot
        self._records = records
        self._blobs = blobs

    @property
    def status(self) -> str:
        """The run's status when it was exported."""
        return self.snapshot.status

    @property
    def info(self) -> RunInfo:
        """One line about the run."""
        return info_of(self.snapshot)

    def journal(self, from_seq: int = 1) -> list[Record]:
        """The records, in order, from a sequence on."""
        return [record for record in self._records if record.seq >= from_seq]

    def output(self) -> object:
        """What the run ended with.

        Raises:
            JournalError: it had not completed when it was exported.
        """
        final = self.snapshot.final.journal_seq if self.snapshot.final else None
        for record in self._records:
            if isinstance(record, Commit) and record.seq == final and record.action == "complete":
                return codec.decode(cast("Commit", filled_from(self._blobs, record)).output)
        raise JournalError(f"run {self.id} was {self.status} when it was exported: it has no output")

    def check(self) -> CheckReport:
        """Audit the journal; the report is true when every rule holds."""
        step = next(iter(self.snapshot.steps.values()))
        records = [filled_from(self._blobs, record) for record in self._records]
        return check(records, turns=step.turns, settled=self.status == "completed")

    def _all(self) -> list[Record]:
        return self._records

    def _facts(self) -> RunFacts:
        return RunFacts(run=self.id, agent=self.snapshot.type, status=self.snapshot.status)


def load(path: str | Path) -> LoadedRun:
    """Read a run that `Run.export` wrote.

    Raises:
        FormatVersion: another version of agentbook wrote it in another form.
        JournalError: it is no such file, or it is damaged; the text says at which line.

    Example:
        >>> import agentbook
        >>> run = agentbook.load("order-42.jsonl")  # doctest: +SKIP
        >>> bool(run.check())  # doctest: +SKIP
        True
    """
    lines = _lines(Path(path))
    first: tuple[int, Json] = (0, {})
    _, header = next(lines, first)
    if "agentbook" not in header:
        raise JournalError(f"{path} is not an exported run: its first line is no header")
    if header["agentbook"] != VERSION:
        raise FormatVersion(f"{path} has version {header['agentbook']!r}, this agentbook reads {VERSION}: upgrade it")
    snapshot = RunSnapshot.model_validate(header["snapshot"])
    blobs: dict[str, bytes] = {}
    records: list[Record] = []
    for number, line in lines:
        if "blob" in line:
            data = base64.b64decode(str(line["data"]))
            if hashlib.sha256(data).hexdigest() != line["blob"]:
                raise JournalError(f"{path}, line {number}: the large value {line['blob']} is damaged")
            blobs[str(line["blob"])] = data
        elif "record" in line:
            records.append(decode(to_json(line["record"]), cast("int", line["seq"])))
        else:
            raise JournalError(f"{path}, line {number}: neither a record nor a large value")
    missing = {digest for record in records for digest in references(record)} - set(blobs)
    if missing:
        raise JournalError(f"{path} lacks {len(missing)} large values: the file was cut")
    return LoadedRun(snapshot, records, blobs)


def _lines(path: Path) -> Iterator[tuple[int, Json]]:
    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
            try:
                parsed = from_json(line)
            except ValueError:
                raise JournalError(f"{path}, line {number}: not JSON; the file was cut or is no exported run") from None
            if not isinstance(parsed, dict):
                raise JournalError(f"{path}, line {number}: not a JSON object")
            yield number, cast("Json", parsed)
