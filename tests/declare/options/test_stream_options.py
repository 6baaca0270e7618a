"""The options of a stream: what they mean, and which of them don't fit together."""

from pathlib import Path

import pytest

from runnel.declare.loading.loader import load_flow
from runnel.declare.loading.project_errors import ProjectMistakes
from runnel.declare.model.flow import Flow
from runnel.declare.settings import load_settings

SOURCES = 'import runnel as rn\nrn.source("ods.clicks", rn.manual())\nrn.source("ods.buys", rn.manual())\n'


def flow(root: Path, text: str) -> Flow:
    (root / "flows").mkdir()
    (root / "runnel.toml").write_text('[project]\nname = "shop"\n')
    (root / "flows" / "a.py").write_text(SOURCES + text)
    return load_flow(load_settings(root))


def task(options: str) -> str:
    return f'@rn.task("dws.x", {options})\ndef x(clicks, buys): ...\n'


MARKS = {
    'stream="clicks", watermark=("ts", "10 minutes")': (("", "ts", "10 minutes"),),
    'stream=["clicks", "buys"], watermark={"clicks": ("ts", "1m"), "buys": ("at", "1h")}': (
        ("clicks", "ts", "1m"),
        ("buys", "at", "1h"),
    ),
    'stream="clicks"': (),
}


@pytest.mark.parametrize("options", MARKS)
def test_watermarks(tmp_path: Path, options: str) -> None:
    (found,) = flow(tmp_path, task(options)).tasks.values()
    assert found.options.watermark == MARKS[options]


MISTAKES = {
    'watermark=("ts", "1 minute")': "`watermark` applies only to streams, but there is no `stream`",
    'output="append"': "`output` applies only to streams, but there is no `stream`",
    'stream="clicks", by="day"': "`by` has no meaning for a stream",
    'stream="clicks", rowwise=True': "`rowwise` has no meaning for a stream",
    'stream="clicks", output="update"': '`output="update"` needs the columns that identify a row',
    'stream="clicks", key="id"': "`key` has no meaning for a stream that only appends rows",
    'stream="clicks", output="complete"': "`output` can't be 'complete'",
    'stream="click"': "close: `clicks`",
    'stream="clicks", watermark="ts"': "`watermark` must be a column and a duration",
    'stream="clicks", watermark=("ts", "soon")': "`watermark` must be a duration",
    'stream="clicks", watermark={"buys": ("at", "1h")}': "which is not read as a stream",
    'stream="clicks", trigger="often"': "`trigger` must be a duration",
}


@pytest.mark.parametrize("options", MISTAKES)
def test_mistakes(tmp_path: Path, options: str) -> None:
    with pytest.raises(ProjectMistakes) as found:
        flow(tmp_path, task(options))
    assert MISTAKES[options] in str(found.value) and "flows/a.py:4" in str(found.value)


@pytest.mark.parametrize(("poll", "is_right"), [("continuous", True), ("1 minute", True), ("always", False)])
def test_how_often_to_look(tmp_path: Path, poll: str, is_right: bool) -> None:
    text = f'rn.source("ods.more", rn.manual(), poll="{poll}")\n'
    if is_right:
        assert [one.poll for one in flow(tmp_path, text).sources.values()][-1] == poll
    else:
        with pytest.raises(ProjectMistakes, match="`poll` must be a duration"):
            flow(tmp_path, text)
