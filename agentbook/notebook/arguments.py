"""The arguments of a magic: read like a command line, wrong ones answered without a traceback."""

from __future__ import annotations

import argparse
import shlex
from typing import NoReturn

from IPython.core.error import UsageError


class Arguments(argparse.ArgumentParser):
    """A parser whose errors are what IPython shows as one line."""

    def __init__(self, magic: str, **options: str) -> None:
        # `-h` would end the kernel's cell by SystemExit; `%magic?` is the help.
        super().__init__(prog=magic, add_help=False, allow_abbrev=False, exit_on_error=False)
        self.usage_hint = options.get("hint", "")

    def read(self, line: str) -> argparse.Namespace:
        """Read a magic's line.

        Raises:
            UsageError: an option is unknown, or an argument is missing.
        """
        try:
            return self.parse_args(shlex.split(line))
        except ValueError as error:
            # An open quote; shlex says so in one line.
            self.error(str(error))
        except argparse.ArgumentError as error:
            self.error(str(error))

    def error(self, message: str) -> NoReturn:
        usage = self.format_usage().removeprefix("usage: ").strip()
        raise UsageError(f"{message}. Write: {usage}{f'. {self.usage_hint}' if self.usage_hint else ''}")
