"""A project made of texts, loaded without Spark."""

from collections.abc import Callable, Mapping
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

from runnel.declare.loading.loader import load_flow
from runnel.declare.loading.project_errors import ProjectMistakes
from runnel.declare.model.flow import Flow
from runnel.declare.settings import load_settings

HEAD = "import runnel as rn\n"


class Project:
    """A folder with a runnel.toml; `write` adds files, `load` and `mistakes` say what Runnel makes of them."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.write({"runnel.toml": '[project]\nname = "shop"\n'})

    def write(self, files: Mapping[str, str]) -> "Project":
        for name, text in files.items():
            path = self.root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(dedent(text))
        return self

    def load(self, *overrides: str, start_spark: Callable[[], object] | None = None, **how: Any) -> Flow:
        return load_flow(load_settings(self.root, overrides=overrides, **how), start_spark)

    def mistakes(self, *overrides: str, **how: Any) -> str:
        with pytest.raises(ProjectMistakes) as caught:
            self.load(*overrides, **how)
        return str(caught.value)


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path)
