"""The line that says where a test run spent its time."""

from __future__ import annotations

import pytest
from plugins.shares import before_pytest, share_line, stage_of


@pytest.mark.parametrize(
    ("nodeid", "stage"),
    [
        ("tests/e2e/test_a.py::test_b", "browser"),
        ("notebooks/01_first_agent.ipynb::Cell 3", "notebooks"),
        ("tests/unit_like/test_a.py::test_b", "other"),
    ],
)
def test_a_test_belongs_to_the_stage_of_its_folder(nodeid: str, stage: str) -> None:
    assert stage_of(nodeid) == stage


def test_stages_stand_in_the_order_they_run_with_their_share() -> None:
    seconds = {"live": 3.0, "install": 6.0, "unit": 1.0, "crash": 0.01}
    assert share_line(seconds) == "time: install 6.0 s (60%) · unit 1.0 s (10%) · live 3.0 s (30%)"


def test_a_run_of_no_tests_has_a_line_too() -> None:
    assert share_line({}) == "time: "


def test_what_came_before_pytest_is_told_by_the_environment() -> None:
    environ = {"AGENTBOOK_INSTALL_SECONDS": "40", "AGENTBOOK_MAKE_STARTED": "1000"}
    assert before_pytest(environ, now=1007.5) == {"install": 40.0, "static": 7.5}
    assert before_pytest({}, now=1007.5) == {}
