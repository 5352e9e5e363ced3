"""scripts/venv, with an installer of ours in place of the real one."""

import os
import shutil
import subprocess
from pathlib import Path

SCRIPT = Path(__file__).parent.parent / "scripts" / "venv"


def program(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)


def set_up(project: Path, *arguments: str) -> str:
    """What it says: nothing where all is there."""
    environment = os.environ | {"PATH": f"{project / 'bin'}:{os.environ['PATH']}"}
    command = [str(project / "scripts" / "venv"), *arguments]
    return subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=30, check=False
    ).stderr


def test_what_an_interrupted_set_up_leaves_is_not_taken_for_the_whole(tmp_path: Path) -> None:
    (tmp_path / "scripts").mkdir()
    shutil.copy(SCRIPT, tmp_path / "scripts" / "venv")
    (tmp_path / "pyproject.toml").write_text("[project]\n")
    program(tmp_path / ".venv" / "bin" / "python", "exit 0")
    program(tmp_path / "bin" / "uv", "exit 0")
    assert "Setting up" in set_up(tmp_path)
    assert set_up(tmp_path) == ""

    program(tmp_path / "bin" / "uv", "kill -9 $PPID")
    assert "Setting up" in set_up(tmp_path, "dev")
    program(tmp_path / "bin" / "uv", "exit 0")
    assert "Setting up" in set_up(tmp_path)
    assert set_up(tmp_path) == ""
