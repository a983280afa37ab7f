"""Large values in the object store, in the layout that every NATS client reads as one.

Chunks lie under ``$O.{bucket}.C.{id}``, one description for each object under
``$O.{bucket}.M.{name in base64}``; the description is written last, so an object is there
whole or not at all.
"""

from __future__ import annotations

import base64
import hashlib
import json
import secrets
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, cast

from agentbook.broker import names
from agentbook.broker import read as reading
from agentbook.broker.outcomes import Stored
from agentbook.broker.streams import stream_name

if TYPE_CHECKING:
    from agentbook.broker.connection import Connection

_CHUNK = 128 * 1024

Json = dict[str, object]


class Blobs:
    """The object store of a book."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._bucket = connection.names.stream(names.PAYLOADS)
        self._stream = stream_name(connection.names, names.PAYLOADS)

    async def put(self, name: str, data: bytes) -> None:
        """Store an object, in place of an older one of that name.

        Raises:
            StreamFull: there is no room.
            Undecided: the server did not decide before the append deadline.
        """
        old = await self._described(name)
        chunks = f"$O.{self._bucket}.C.{(identity := secrets.token_hex(11))}"
        for start in range(0, len(data), _CHUNK):
            await self._connection.publish_decided(chunks, data[start : start + _CHUNK])
        description: Json = {
            "name": name,
            "bucket": self._bucket,
            "nuid": identity,
            "size": len(data),
            "chunks": -(-len(data) // _CHUNK),
            "digest": f"SHA-256={base64.urlsafe_b64encode(hashlib.sha256(data).digest()).decode()}",
            "options": {"max_chunk_size": _CHUNK},
        }
        await self._connection.publish_decided(
            self._description(name), json.dumps(description).encode(), headers={"Nats-Rollup": "sub"}
        )
        if old is not None:
            await self._purge(f"$O.{self._bucket}.C.{old['nuid']}")

    async def size(self, name: str) -> int | None:
        """How large an object is, in bytes; None if there is none."""
        described = await self._described(name)
        return None if described is None else cast("int", described["size"])

    async def get(self, name: str) -> bytes | None:
        """An object's bytes; None if there is none, or not whole."""
        described = await self._described(name)
        if described is None:
            return None
        chunks = self._pages(f"$O.{self._bucket}.C.{described['nuid']}")
        data = b"".join([chunk.data async for chunk in chunks])
        return data if len(data) == described["size"] else None

    async def remove(self, prefix: str) -> int:
        """Remove every object whose name begins like this. Returns how many."""
        removed = 0
        async for stored in self._pages(f"$O.{self._bucket}.M.>"):
            described = cast("Json", json.loads(stored.data))
            if str(described.get("name", "")).startswith(prefix):
                await self._purge(f"$O.{self._bucket}.C.{described['nuid']}")
                await self._purge(stored.subject)
                removed += 1
        return removed

    def _description(self, name: str) -> str:
        return f"$O.{self._bucket}.M.{base64.urlsafe_b64encode(name.encode()).decode()}"

    async def _described(self, name: str) -> Json | None:
        found = await reading.from_leader(self._connection.api, self._stream, {"last_by_subj": self._description(name)})
        described = cast("Json", json.loads(found.data)) if found is not None else None
        return None if described is None or described.get("deleted") else described

    def _pages(self, subject: str) -> AsyncIterator[Stored]:
        return self._connection.pages(self._stream, subject)

    async def _purge(self, subject: str) -> None:
        await self._connection.api.call(f"STREAM.PURGE.{self._stream}", {"filter": subject}, timeout=30.0)
