"""``--wait``: a magic call that is awaited, so that the kernel stays free for widgets.

``await %%turn …`` is a syntax error in IPython, and a blocking magic would hold every
widget message until it ends. So the transformed call is awaited instead.
"""

from __future__ import annotations

import ast

_CALL = "get_ipython().run_cell_magic('turn', "


def await_magics(lines: list[str]) -> list[str]:
    """Rewrite a ``%%turn … --wait`` cell, which IPython has already made a call, into ``await`` of it."""
    if len(lines) != 1 or not lines[0].startswith(_CALL):
        return lines
    try:
        call = ast.parse(lines[0], mode="eval").body
    except SyntaxError:
        return lines
    if not isinstance(call, ast.Call) or not isinstance(line := call.args[1], ast.Constant):
        return lines
    return [f"await {lines[0]}"] if "--wait" in str(line.value).split() else lines
