"""Where a server is and how to identify oneself to it."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Target:
    """One server or cluster. Credentials never show in its repr.

    Attributes:
        url: one or more ``scheme://host:port``, separated by commas, without credentials.
        user: the user's name, or None.
        password: the user's password, or None.
        token: a token instead of user and password, or None.
        embedded: True if a keeper of ours runs the server.
    """

    url: str
    user: str | None = None
    password: str | None = field(default=None, repr=False)
    token: str | None = field(default=None, repr=False)
    embedded: bool = False

    @property
    def servers(self) -> list[str]:
        """Each address by itself."""
        return self.url.split(",")
