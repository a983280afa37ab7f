"""What a run may be called, and the keys derived from its name."""

from __future__ import annotations

import re
import time
import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentbook import ids
from agentbook.errors import ConfigError


@pytest.mark.parametrize("run", ["a", "order-42", "A_b-9", "x" * 64, "-", "0"])
def test_a_root_run_id_may_be_up_to_64_letters_digits_dashes_and_underscores(run: str) -> None:
    assert ids.check_run_id(run) == run


@pytest.mark.parametrize("run", ["", "x" * 65, "a b", "a.b", "a~b", "a*", ">", "ä", "a\n", "a/b"])
def test_another_root_run_id_is_refused_with_what_is_allowed(run: str) -> None:
    with pytest.raises(ConfigError, match="1 to 64 letters") as caught:
        ids.check_run_id(run)
    assert repr(run) in str(caught.value)


def test_a_child_run_id_may_hold_a_tilde_and_512_characters() -> None:
    child = "order-42~agent~0~3"
    assert ids.check_any_run_id(child) == child
    assert ids.check_any_run_id("x" * 512)
    for run in ("", "x" * 513, "a.b"):
        with pytest.raises(ConfigError, match="'~'"):
            ids.check_any_run_id(run)


def test_a_name_is_one_subject_token_and_is_refused_by_what_it_names() -> None:
    assert ids.check_name("agent", "billing") == "billing"
    with pytest.raises(ConfigError, match=r"agent name 'bill\.ing'"):
        ids.check_name("agent", "bill.ing")


@given(st.text(max_size=200))
def test_any_text_becomes_a_token_that_a_subject_can_hold(text: str) -> None:
    assert re.fullmatch(r"[0-9a-f]{32}", ids.text_token(text))


def test_a_lone_surrogate_has_a_token_too() -> None:
    assert ids.text_token("\ud800") != ids.text_token("\ud801")


def test_a_token_does_not_change_between_versions() -> None:
    assert ids.text_token("request 1") == "ad1b9de910513527b407147d7a055690"


def test_a_new_run_id_is_a_version_7_uuid_of_this_moment() -> None:
    before = time.time_ns() // 1_000_000
    value = uuid.UUID(ids.new_run_id())
    assert (value.version, value.variant) == (7, uuid.RFC_4122)
    assert before <= value.int >> 80 <= time.time_ns() // 1_000_000


def test_new_run_ids_are_distinct_usable_and_ordered_by_their_millisecond() -> None:
    made = [ids.new_run_id() for _ in range(2000)]
    assert len(set(made)) == 2000
    assert [ids.check_run_id(run) for run in made] == made
    assert [run[:13] for run in made] == sorted(run[:13] for run in made)


def test_claims_are_128_random_bits() -> None:
    claims = {ids.new_claim_id() for _ in range(1000)}
    assert len(claims) == 1000
    assert all(re.fullmatch(r"[0-9a-f]{32}", claim) for claim in claims)


def test_the_key_of_a_call_is_its_place() -> None:
    assert ids.call_key("order-42", "agent", 0, 3) == "order-42.agent.0.3"


def test_a_named_step_and_a_call_never_share_a_key() -> None:
    assert ids.step_key("order-42", "cell", "3") == "order-42.cell.@3"
    assert ids.step_key("r", "s", "0.3") != ids.call_key("r", "s", 0, 3)
