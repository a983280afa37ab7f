"""Settings: defaults, the environment over them, and refusals that name the setting."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from agentbook.errors import ConfigError
from agentbook.settings import Settings


def test_without_an_environment_the_defaults_hold() -> None:
    assert Settings.from_environment({}) == Settings()


def test_a_book_survives_a_power_cut_unless_asked_otherwise() -> None:
    assert Settings().durability == "disk"


@pytest.mark.parametrize(
    ("field", "text", "value"),
    [
        ("dir", "elsewhere", Path("elsewhere")),
        ("durability", "process", "process"),
        ("namespace", "team-a_1", "team-a_1"),
        ("namespace", "", None),
        ("ack_wait", "1", 1.0),
        ("heartbeat", "0.25", 0.25),
        ("restart_limit", "7", 7),
        ("unknown_errors", "httpx.ReadTimeout, httpx.WriteError, ", ("httpx.ReadTimeout", "httpx.WriteError")),
        ("secrets", "", ()),
        ("legacy_step_events", "on", True),
        ("legacy_step_events", "0", False),
    ],
)
def test_the_environment_is_read_by_the_type_of_the_field(field: str, text: str, value: object) -> None:
    settings = Settings.from_environment({f"AGENTBOOK_{field.upper()}": text})
    assert getattr(settings, field) == value
    assert type(getattr(settings, field)) is type(value)
    assert settings == dataclasses.replace(Settings(), **{field: value})


def test_every_field_can_be_set_in_the_environment() -> None:
    for field in dataclasses.fields(Settings):
        default = field.default
        text = ",".join(default) if isinstance(default, tuple) else str("" if default is None else default)
        if field.name != "heartbeat":
            assert Settings.from_environment({f"AGENTBOOK_{field.name.upper()}": text}) == Settings()


def test_the_process_environment_is_the_default_source(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AGENTBOOK_CONCURRENCY", "3")
    assert Settings.from_environment().concurrency == 3


def test_other_variables_are_left_alone() -> None:
    assert Settings.from_environment({"AGENTBOOK_REQUIRE": "node", "ACK_WAIT": "1"}) == Settings()


@pytest.mark.parametrize(
    ("variable", "text"),
    [
        ("AGENTBOOK_ACK_WAIT", "soon"),
        ("AGENTBOOK_HEARTBEAT", ""),
        ("AGENTBOOK_RESTART_LIMIT", "2.5"),
        ("AGENTBOOK_LEGACY_STEP_EVENTS", "maybe"),
    ],
)
def test_a_text_of_the_wrong_type_is_refused_by_variable_and_text(variable: str, text: str) -> None:
    with pytest.raises(ConfigError, match=variable) as caught:
        Settings.from_environment({variable: text})
    assert repr(text) in str(caught.value)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("durability", "memory"),
        ("restart_limit", 0),
        ("restart_limit", 1001),
        ("replicas", 0),
        ("replicas", 6),
        ("ack_wait", 0),
        ("append_deadline", -1),
        ("retention", 0),
        ("server_grace", 0),
        ("max_calls", 0),
        ("concurrency", 0),
        ("max_queued_inputs", 0),
        ("max_depth", 0),
        ("max_children", 0),
        ("loop_state_max_bytes", 0),
        ("namespace", "a.b"),
        ("namespace", "a b"),
        ("namespace", ">"),
        ("namespace", ""),
    ],
)
def test_a_value_out_of_range_is_refused_by_name(field: str, value: object) -> None:
    with pytest.raises(ConfigError, match=field):
        dataclasses.replace(Settings(), **{field: value})


@pytest.mark.parametrize("limit", [1, 1000])
def test_the_bounds_themselves_are_allowed(limit: int) -> None:
    assert Settings(restart_limit=limit).restart_limit == limit


def test_a_heartbeat_is_a_third_of_the_ack_wait_unless_given() -> None:
    assert Settings(ack_wait=30).heartbeat_every == 10
    assert Settings(ack_wait=30, heartbeat=2).heartbeat_every == 2


def test_settings_do_not_change() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        Settings().ack_wait = 1  # type: ignore[misc]
