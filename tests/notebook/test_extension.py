"""Loading and unloading: as often as one likes, and nothing durable is touched."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.live

MAGICS = ["agentbook", "attach", "check", "graph", "journal", "timeline"]


def there(kernel):
    """Which magics there are."""
    return kernel.value(
        f"sorted(name for name in {MAGICS} if get_ipython().find_line_magic(name)), "
        "get_ipython().find_cell_magic('turn') is not None"
    )


def hooks(kernel):
    """How often each thing of ours hangs in the shell."""
    return kernel.value(
        "import sys\nfrom agentbook.notebook import waiting, printing\nfrom agentbook.book import display\n"
        "(sum(each is waiting.await_magics for each in get_ipython().input_transformers_post),"
        " [type(each).__name__ for each in (sys.stdout, getattr(sys.stdout, 'stream', None))], display._show is None)"
    )


def test_loading_twice_is_loading_once(kernel):
    once = hooks(kernel)
    assert once == "(1, ['Router', 'OutStream'], False)"
    by_hand = "import agentbook\nagentbook.load_ipython_extension(get_ipython())"
    for code in ("%load_ext agentbook", "%reload_ext agentbook", "%reload_ext agentbook", by_hand):
        assert not kernel.execute(code).errors
        assert hooks(kernel) == once
    assert value_of_turn(kernel) == "'You said: hi'"


def value_of_turn(kernel):
    return kernel.execute("%%turn greeter --wait\nhi").result["text/plain"]


def test_unloading_takes_everything_away_and_leaves_the_runs(kernel):
    try:
        kernel.execute("%%turn holder --run kept -o run\nkept")
        for _ in range(2):
            kernel.execute("%unload_ext agentbook")
            assert there(kernel) == "([], False)"
            assert hooks(kernel) == "(0, ['OutStream', 'NoneType'], True)"
        assert "Cell magic `%%turn` not found" in kernel.execute("%%turn greeter\nhi").text
        assert kernel.value("run.status") == "'running'"
        # Without the extension a run shows itself as it stands.
        assert set(kernel.execute("run").result) == {"text/html", "text/plain"}
    finally:
        kernel.execute("%load_ext agentbook")
    assert there(kernel) == f"({MAGICS}, True)"
    kernel.open_gate("kept")
    assert kernel.value("await run") == "'done'"


def test_a_live_view_goes_on_after_unloading(kernel):
    try:
        cell = kernel.execute("%%turn holder --run unloaded -o run\nunloaded")
        kernel.execute("%unload_ext agentbook")
        kernel.open_gate("unloaded")
        kernel.until(lambda: [each for each in kernel.heard if each.kind == "update_display_data"])
        kernel.send(cell.widget, {"type": "snapshot", "id": "1"})
        kernel.until(lambda: kernel.told(cell.widget))
    finally:
        kernel.execute("%load_ext agentbook")
