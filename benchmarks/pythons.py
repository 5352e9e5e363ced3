"""Which Python the brokers run on: what is on this machine, how it was built, how fast it is.

Two builds of one version differ by a quarter: one built with `--enable-optimizations` runs the same code in less time.
Such a one is taken if there is one, of several the fastest in a short piece of Python of the kind that a broker runs.
Each is timed several times and in turns, because other work on the machine slows all of them.
"""

import hashlib
import json
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from running import ROOT

NAME = re.compile(r"python3(\.\d+)?")
OLDEST = (3, 11)
PROBES = 5
ENVIRONMENTS = ROOT / ".build" / "benchmarks"
PROBE = """
import json, os, platform, sys, sysconfig, time

def work():
    counts, total = {}, 0
    for number in range(50_000):
        key = f"k{number & 1023}"
        counts[key] = counts.get(key, 0) + 1
        total += len(b"".join((key.encode(), b"-"))) + number % 7

def spent():
    began = time.thread_time()
    work()
    return time.thread_time() - began

base = getattr(sys, "_base_executable", None) or sys.executable
print(json.dumps({
    "path": os.path.realpath(base),
    "implementation": platform.python_implementation(),
    "version": platform.python_version(),
    # Debian's packages do not name the option. They profile in a build of their own, and take out the flag for it.
    "is_optimized": "--enable-optimizations" in (sysconfig.get_config_var("CONFIG_ARGS") or "")
    or sysconfig.get_config_var("PGO_PROF_USE_FLAG") == "",
    "probe_ms": round(1000 * min(spent() for _ in range(5)), 1),
}))
"""


class PythonError(Exception):
    """It cannot be used; the text says why."""


@dataclass(frozen=True)
class Python:
    """An interpreter outside of any virtual environment."""

    path: Path
    version: str
    is_optimized: bool
    probe_ms: float

    def __str__(self) -> str:
        build = "optimized" if self.is_optimized else "built without --enable-optimizations"
        return f"Python {self.version} ({build}, probe {self.probe_ms:g} ms)"


def described(executable: Path) -> Python:
    done = subprocess.run(
        [str(executable), "-I", "-c", PROBE], capture_output=True, text=True, check=False, timeout=60
    )
    if done.returncode:
        raise PythonError(f"{executable} does not run: {done.stderr.strip()[-200:]}")
    facts = json.loads(done.stdout)
    if facts.pop("implementation") != "CPython" or version_of(facts["version"]) < OLDEST:
        raise PythonError(f"{executable} is {facts['version']}; CPython 3.11 or later is needed")
    return Python(**{**facts, "path": Path(facts["path"])})


def version_of(text: str) -> tuple[int, int]:
    major, minor = text.split(".")[:2]
    return int(major), int(minor)


def candidates(path_variable: str) -> list[Path]:
    """What is called python3 or python3.N there."""
    found = [Path(sys.executable)]
    for directory in map(Path, path_variable.split(os.pathsep)):
        if directory.is_dir():
            found += sorted(file for file in directory.iterdir() if NAME.fullmatch(file.name))
    return found


def best_first(measured: Iterable[Python]) -> list[Python]:
    """Each interpreter once, with its best time: optimized ones first, and then by speed."""
    best: dict[Path, Python] = {}
    for python in measured:
        known = best.setdefault(python.path, python)
        if python.probe_ms < known.probe_ms:
            best[python.path] = python
    return sorted(best.values(), key=lambda python: (not python.is_optimized, python.probe_ms))


def all_pythons() -> list[Python]:
    path_variable = os.pathsep.join([os.environ.get("PATH", ""), "/usr/local/bin", "/usr/bin"])
    executables = dict.fromkeys(map(Path.resolve, candidates(path_variable)))
    measured: list[Python] = []
    for executable in executables:
        try:
            measured.append(described(executable))
        except (PythonError, OSError, subprocess.TimeoutExpired):
            continue  # an old one, or a shim whose version is not chosen
    measured += [described(python.path) for _ in range(PROBES - 1) for python in best_first(measured)]
    return best_first(measured)


def environment(python: Python) -> Path:
    """The executable of an environment with what the project depends on, made once. Raises PythonError."""
    if python.path == Path(os.path.realpath(getattr(sys, "_base_executable", sys.executable))):
        return Path(sys.executable)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    needed = project["dependencies"] + _of_extra(project, "proxy")
    mark = hashlib.sha256(f"{python.path} {python.version} {needed}".encode()).hexdigest()[:12]
    executable = ENVIRONMENTS / f"python-{python.version}-{mark}" / "bin" / "python"
    done_mark = executable.with_name("installed")
    if not done_mark.exists():
        print(f"setting up {python.path} for the brokers (once)", file=sys.stderr, flush=True)
        for command in (
            [str(python.path), "-m", "venv", "--clear", str(executable.parent.parent)],
            [str(executable), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *needed],
        ):
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode:
                raise PythonError(f"{python.path} cannot be set up: {(done.stderr or done.stdout)[-300:]}")
        done_mark.touch()
    return executable


def _of_extra(project: Mapping[str, Any], extra: str) -> list[str]:
    """What it asks for. An extra may ask for others of this project, which no registry has."""
    needed: list[str] = []
    for requirement in project["optional-dependencies"][extra]:
        name, _, others = requirement.partition("[")
        if name == project["name"]:
            needed += (of for other in others.rstrip("]").split(",") for of in _of_extra(project, other))
        else:
            needed.append(requirement)
    return needed


def choose(wanted: Path | None) -> tuple[Path, Python, list[Python]]:
    """The executable for the brokers, which Python that is, and what else there is. Raises PythonError."""
    if wanted is not None:
        python = described(wanted)
        return environment(python), python, [other for other in all_pythons() if other.path != python.path]
    found = all_pythons()
    for python in found:
        try:
            return environment(python), python, [other for other in found if other is not python]
        except PythonError as error:
            print(f"{error}; the next one is taken", file=sys.stderr, flush=True)
    raise PythonError("no Python was found that can run the brokers; name one with --python")
