"""What a built sdist and wheel hold: the package, the widgets and the notebooks, and nothing that develops them."""

from __future__ import annotations

import tarfile
import zipfile
from email.parser import Parser
from pathlib import Path

import pytest
from distributions import ROOT, build


def files_of(wheel: Path) -> set[str]:
    """The files a wheel installs, without its metadata."""
    names = zipfile.ZipFile(wheel).namelist()
    return {name for name in names if ".dist-info/" not in name}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(ROOT, "wheel", tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def sdist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(ROOT, "sdist", tmp_path_factory.mktemp("sdist"))


def shipped(folder: str, *patterns: str) -> set[str]:
    """The names of the files that are shipped of a folder."""
    return {path.name for pattern in patterns for path in (ROOT / folder).glob(pattern)}


WIDGETS = shipped("widgets", "*.js", "*.css")
NOTEBOOKS = shipped("notebooks", "*.ipynb")


def test_the_wheel_holds_the_package_the_widgets_and_the_notebooks(wheel: Path) -> None:
    package = {str(path.relative_to(ROOT)) for path in (ROOT / "agentbook").rglob("*.py")}
    widgets = {f"agentbook/_widgets/{name}" for name in WIDGETS}
    notebooks = {f"agentbook/_notebooks/{name}" for name in NOTEBOOKS}
    assert {"timeline.js", "timeline.css"} <= WIDGETS
    assert "01_first_agent.ipynb" in NOTEBOOKS
    assert files_of(wheel) == package | widgets | notebooks | {"agentbook/py.typed"}


def test_the_wheel_carries_the_licence_the_readme_and_its_extras(wheel: Path) -> None:
    archive = zipfile.ZipFile(wheel)
    (folder,) = {name.split("/")[0] for name in archive.namelist() if ".dist-info/" in name}
    metadata = Parser().parsestr(archive.read(f"{folder}/METADATA").decode())
    assert f"{folder}/licenses/LICENSE" in archive.namelist()
    assert metadata["License-Expression"] == "Apache-2.0"
    assert metadata.get_payload() == (ROOT / "README.md").read_text("utf-8")
    assert set(metadata.get_all("Provides-Extra", [])) >= {"notebook", "test"}
    assert "agentbook = agentbook.cli:main" in archive.read(f"{folder}/entry_points.txt").decode()


def test_the_sdist_holds_no_tests_and_no_development_files(sdist: Path) -> None:
    with tarfile.open(sdist) as archive:
        names = {name.split("/", 1)[1] for name in archive.getnames()}
    ours = {name for name in names if not name.startswith("agentbook/")}
    assert ours == {
        ".gitignore", "LICENSE", "PKG-INFO", "README.md", "pyproject.toml",
        *(f"widgets/{name}" for name in WIDGETS),
        *(f"notebooks/{name}" for name in NOTEBOOKS),
    }  # fmt: skip


def test_a_wheel_from_the_sdist_is_the_wheel_from_the_tree(wheel: Path, sdist: Path, tmp_path: Path) -> None:
    with tarfile.open(sdist) as archive:
        archive.extractall(tmp_path, filter="data")
    (unpacked,) = tmp_path.iterdir()
    assert files_of(build(unpacked, "wheel", tmp_path / "dist")) == files_of(wheel)
