"""The one codec for every value that a journal, a snapshot or an input holds.

JSON-native values are stored as they are. Any other supported value is stored as an
object with a ``$type``, and comes back with the same value and type. Everything else
is refused by `encode`, before anything is written, with the path of what has no
stored form.
"""

from __future__ import annotations

from agentbook.codec.decoding import decode
from agentbook.codec.encoding import encode
from agentbook.codec.equality import canonical, digest, equal

__all__ = ["canonical", "decode", "digest", "encode", "equal"]
