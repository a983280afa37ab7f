"""Plain functions, each in a thread of its own."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import Callable, Mapping, Sequence


async def in_thread(
    function: Callable[..., object], positional: Sequence[object], keywords: Mapping[str, object]
) -> object:
    """Run a function in a new daemon thread, with this task's context variables.

    Not in asyncio's own pool: it is small, so tools that wait would keep others from starting, and its threads
    keep the process from ending.
    """
    loop = asyncio.get_running_loop()
    future: asyncio.Future[object] = loop.create_future()
    context = contextvars.copy_context()

    def settle(result: object, error: BaseException | None) -> None:
        if future.done():
            return  # whoever waited has given up
        if error is None:
            future.set_result(result)
        else:
            future.set_exception(error)

    def work() -> None:
        result: object = None
        failure: BaseException | None = None
        try:
            result = context.run(function, *positional, **keywords)
        except StopIteration as error:
            # A future cannot carry StopIteration: whoever awaits it would wait for ever.
            failure = RuntimeError("the tool raised StopIteration")
            failure.__cause__ = error
        except BaseException as error:  # noqa: BLE001 - it is raised again where the result is awaited
            failure = error
        try:
            loop.call_soon_threadsafe(settle, result, failure)
        except RuntimeError:
            return  # the loop is closed: nobody waits any more

    threading.Thread(target=work, name=f"tool {getattr(function, '__name__', '')}", daemon=True).start()
    return await future
