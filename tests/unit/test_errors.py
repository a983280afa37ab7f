"""The tree of exceptions, and what each carries."""

from __future__ import annotations

import inspect
import re

import pytest

from agentbook import errors


def documented_parents() -> dict[str, str | None]:
    """Each exception's parent, as the tree in the module's docstring draws it."""
    parents: dict[str, str | None] = {}
    path: list[str] = []
    for line in (errors.__doc__ or "").splitlines():
        if not (drawn := re.match(r"((?:│   |    |├── |└── )*)([A-Z]\w+)(?:  |\s*\(|$)", line)):
            continue
        depth = len(drawn[1]) // 4
        path[depth:] = [drawn[2]]
        parents[drawn[2]] = path[depth - 1] if depth else None
    return parents


def defined() -> dict[str, type[BaseException]]:
    classes = inspect.getmembers(errors, inspect.isclass)
    return {name: kind for name, kind in classes if kind.__module__ == errors.__name__}


def test_the_tree_in_the_docstring_is_the_tree_of_the_classes() -> None:
    bases = {name: kind.__base__ for name, kind in defined().items()}
    assert documented_parents() == {
        name: None if base in (Exception, BaseException) else base.__name__ for name, base in bases.items() if base
    }


def test_all_holds_every_class_in_order() -> None:
    assert errors.__all__ == sorted(defined())


@pytest.mark.parametrize("name", sorted(defined()))
def test_each_has_a_docstring_of_its_own(name: str) -> None:
    assert defined()[name].__dict__.get("__doc__")


def test_a_signal_passes_through_except_exception() -> None:
    signals = [kind for kind in defined().values() if issubclass(kind, errors.Signal)]
    assert len(signals) > 5
    assert not any(issubclass(kind, Exception) for kind in signals)


def test_every_error_can_be_caught_by_the_one_base_class() -> None:
    assert all(issubclass(kind, errors.AgentbookError | errors.Signal) for kind in defined().values())


def test_a_server_too_old_names_both_versions_and_the_way_out() -> None:
    error = errors.ServerTooOld("2.9.1", "2.12")
    assert (error.version, error.needed) == ("2.9.1", "2.12")
    assert all(part in str(error) for part in ("2.9.1", "2.12", "Upgrade the server"))


def test_a_missing_extra_is_one_line_with_the_command() -> None:
    error = errors.MissingExtra("the timeline", "notebook")
    assert error.extra == "notebook"
    assert str(error).endswith("pip install 'agentbook[notebook]'")
    assert "\n" not in str(error)


def test_a_payload_too_large_says_both_sizes() -> None:
    error = errors.PayloadTooLarge("the output of search", 3_000_000, 1_048_576)
    assert (error.what, error.size, error.limit) == ("the output of search", 3_000_000, 1_048_576)
    assert "3,000,000" in str(error)
    assert "1,048,576" in str(error)


def test_a_replay_mismatch_shows_both_calls_under_each_other() -> None:
    error = errors.ReplayMismatch(3, "tool charge 1", "tool charge 2", cause="code changed")
    lines = str(error).splitlines()
    assert "position 3" in lines[0]
    assert lines[1].index("tool charge") == lines[2].index("tool charge")
    assert lines[3] == "code changed"
    assert "retry()" in lines[4]
    assert (error.position, error.recorded, error.attempted) == (3, "tool charge 1", "tool charge 2")


def test_a_value_that_cannot_be_stored_is_named_by_its_path() -> None:
    error = errors.ValueNotJournalable("result.items[3].when", "a naive generator")
    assert (error.path, error.reason) == ("result.items[3].when", "a naive generator")
    assert str(error).startswith("result.items[3].when ")


def test_held_elsewhere_names_the_holder_and_how_to_watch_or_take_over() -> None:
    error = errors.HeldElsewhere("order-42", "kernel 4188", "agent")
    assert (error.run, error.holder) == ("order-42", "kernel 4188")
    assert all(part in str(error) for part in ("kernel 4188 in agent", "book.attach('order-42')", "force=True"))


def test_a_fenced_holder_learns_by_whom_and_at_which_record() -> None:
    signal = errors.Fenced("order-42", "kernel 4188", 17, "2026-01-01T00:00:00Z")
    assert (signal.run, signal.by, signal.at, signal.when) == ("order-42", "kernel 4188", 17, "2026-01-01T00:00:00Z")
    assert "kernel 4188 took over run order-42 at record 17" in str(signal)


def test_a_cancelled_run_gives_its_reason_if_it_has_one() -> None:
    assert str(errors.RunCancelledError("r")) == "run r was cancelled"
    error = errors.RunCancelledError("r", "too slow")
    assert (str(error), error.reason) == ("run r was cancelled: too slow", "too slow")


def test_a_failed_run_carries_what_was_raised() -> None:
    error = errors.RunFailed("r", "ValueError", "bad", "restart_limit")
    assert (error.run, error.error_type, error.error_message) == ("r", "ValueError", "bad")
    assert error.reason == "restart_limit"
    assert str(error) == "run r failed: ValueError: bad"


def test_a_loop_bound_names_itself_its_limit_and_the_figure() -> None:
    error = errors.LoopBound("max_iterations", 50, 51)
    assert (error.bound, error.limit, error.reached) == ("max_iterations", 50, 51)
    assert str(error) == "max_iterations reached: the limit is 50, this would be 51"


def test_a_halt_carries_the_key_to_resolve() -> None:
    halt = errors.ResumeHalt("r", "r.agent.0.2", "charge", "killed")
    assert (halt.run, halt.subject, halt.name, halt.cause) == ("r", "r.agent.0.2", "charge", "killed")
    assert errors.RunHalted("r", "charge", halt).halt is halt
