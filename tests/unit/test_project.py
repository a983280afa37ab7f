"""The repository as a whole: what lies where, and what no file may hold."""

from __future__ import annotations

import re
import subprocess
import tomllib
from functools import cache
from pathlib import Path

import pytest

import agentbook

ROOT = Path(__file__).parents[2]

TOP_LEVEL = {
    "agentbook", "notebooks", "widgets", "tests", "binder",
    "pyproject.toml", "README.md", "CHANGELOG.md", "CONTRIBUTING.md", "LICENSE", "Makefile",
}  # fmt: skip

LONG_FILES = {
    "agentbook/errors.py",  # one tree, read as a list; splitting it would hide the tree
}

REGISTRIES = re.compile(
    r"(?:pypi|pythonhosted|npmjs|yarnpkg|jsdelivr|unpkg|esm|ghcr|docker)\.(?:org|com|net|io|sh)\b|deb\.debian\.org",
)
MACHINE_PATHS = re.compile(r"(?<![\w.~:/$}<-])/(?:work|root|home|Users)(?![\w.-])")


@cache
def files() -> list[Path]:
    """What is, or is about to be, committed."""
    if not (ROOT / ".git").exists():
        pytest.skip("not a git checkout")
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    return [Path(name) for name in sorted({*listed.split("\0")} - {""}) if (ROOT / name).is_file()]


@cache
def texts() -> dict[str, str]:
    """Each text file's content, by its name."""
    found: dict[str, str] = {}
    for path in files():
        try:
            found[path.as_posix()] = (ROOT / path).read_text("utf-8")
        except UnicodeDecodeError:
            continue
    return found


def make_targets() -> set[str]:
    """The jobs of the Makefile."""
    return set(re.findall(r"^([a-z0-9-]+):", texts()["Makefile"], re.MULTILINE))


def matches(pattern: re.Pattern[str]) -> list[str]:
    """Where a pattern occurs, as file:line: line."""
    return [
        f"{name}:{number}: {line.strip()[:160]}"
        for name, text in texts().items()
        for number, line in enumerate(text.splitlines(), 1)
        if pattern.search(line)
    ]


def test_the_top_level_holds_only_what_the_design_names() -> None:
    assert {path.parts[0] for path in files() if not path.parts[0].startswith(".")} <= TOP_LEVEL


def test_no_file_names_the_host_of_a_registry() -> None:
    assert matches(REGISTRIES) == []


def test_no_file_holds_a_path_of_one_machine() -> None:
    assert matches(MACHINE_PATHS) == []


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("cd /{}/x", True),
        ('"/{}"', True),
        ("../{}/x", False),
        ("a/{}/x", False),
        ("http://{}/x", False),
        ("/{}er", False),
    ],
)
def test_a_machine_path_is_told_from_a_relative_one(text: str, found: bool) -> None:
    assert bool(MACHINE_PATHS.search(text.format("work"))) is found


def test_a_file_of_the_package_can_be_read_in_one_sitting() -> None:
    ours = [name for name in texts() if re.fullmatch(r"agentbook/.*\.py|widgets/[^/]*\.js", name)]
    assert ours
    long = {name for name in ours if len(texts()[name].splitlines()) > 400}
    assert long == LONG_FILES


def test_the_changelog_begins_with_this_version() -> None:
    version = tomllib.loads(texts()["pyproject.toml"])["project"]["version"]
    newest = re.search(r"^## (\S+)", texts()["CHANGELOG.md"], re.MULTILINE)
    assert newest
    assert newest[1] == version == agentbook.__version__


def test_every_make_target_that_is_written_about_exists() -> None:
    for name in ("README.md", "CONTRIBUTING.md", ".ci/run"):
        said = re.findall(r"(?:^|`)make (?:--[\w-]+ )*([a-z0-9-]+)", texts()[name], re.MULTILINE)
        assert set(said) <= make_targets(), name
        assert "test" in said, name


def test_every_make_target_is_declared_phony_and_documented() -> None:
    phony = re.search(r"^\.PHONY: (.*)", texts()["Makefile"], re.MULTILINE)
    assert phony
    documented = re.findall(r"^\| `make ([a-z0-9-]+)`", texts()["CONTRIBUTING.md"], re.MULTILINE)
    assert set(phony[1].split()) == make_targets() == set(documented)


def test_the_map_of_the_code_names_every_part() -> None:
    layers = tomllib.loads(texts()["pyproject.toml"])["tool"]["importlinter"]["contracts"][0]["layers"]
    parts = {part.strip(" ()") for layer in layers for part in layer.split("|")}
    rows = re.findall(r"^\| (`.*?) \|", texts()["CONTRIBUTING.md"], re.MULTILINE)
    mapped = {name for row in rows for name in re.findall(r"`([a-z]+)`", row)}
    assert mapped == parts


def test_relative_links_in_documents_lead_somewhere() -> None:
    for name, text in texts().items():
        if name.endswith(".md"):
            for link in re.findall(r"\]\(([^)#\s:]+)(?:#[^)]*)?\)", text):
                assert (ROOT / name).parent.joinpath(link).exists(), f"{name}: {link}"


def test_ci_runs_are_executable() -> None:
    assert (ROOT / ".ci/run").stat().st_mode & 0o111
