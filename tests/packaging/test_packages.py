"""What gets installed: every package, under the name ptdebug and no other, and a wheel that works elsewhere."""
from __future__ import annotations

import importlib.util
import subprocess
import sys
import tomllib
import venv
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
CONFIG = tomllib.loads((ROOT / "pyproject.toml").read_text())
ROOMS = ("artifacts", "cli", "engine", "operators", "replay", "tracer", "tui")


def test_every_folder_with_code_is_a_package() -> None:
    """setup.py finds packages; a folder without `__init__.py` would miss from the wheel."""
    folders = {path.parent for room in ROOMS for path in (ROOT / room).rglob("*.py")}
    assert [str(folder) for folder in folders if not (folder / "__init__.py").exists()] == []


def test_every_style_sheet_and_cpp_source_is_listed() -> None:
    patterns = CONFIG["tool"]["setuptools"]["package-data"]
    for sheet in (path for kind in ("tcss", "h", "cpp") for path in ROOT.glob(f"*/**/*.{kind}")):
        if sheet.relative_to(ROOT).parts[0] in ROOMS:
            package = ".".join(("ptdebug", *sheet.parent.relative_to(ROOT).parts))
            assert any(sheet.match(pattern) for pattern in patterns.get(package, ())), sheet


@pytest.mark.parametrize("room", [*ROOMS, "examples", "benchmarks"])
def test_no_bare_names(room: str, tmp_path: Path) -> None:
    code = f"import importlib.util, sys; sys.exit(importlib.util.find_spec({room!r}) is not None)"
    assert subprocess.run([sys.executable, "-c", code], cwd=tmp_path).returncode == 0


def test_importing_ptdebug_is_light(tmp_path: Path) -> None:
    code = "import ptdebug, sys; print([m for m in ('torch', 'textual', 'rich', 'sympy') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_ci_installs_as_the_readme_says() -> None:
    readme = next(line for line in (ROOT / "README.md").read_text().splitlines() if "-m pytest" in line)
    make, install, check = (step.strip().replace(".venv/bin/", "") for step in readme.split("&&"))
    ci = (ROOT / ".ci" / "run").read_text().replace('"$bin"/', "").splitlines()
    assert make.startswith("python3.11 -m venv") and any("python3.11" in line and "-m venv" in line for line in ci)
    assert install in ci
    assert any(line.startswith(check) for line in ci)


@pytest.mark.slow
def test_wheel_works_elsewhere(tmp_path: Path) -> None:
    """Build a wheel and install it in a new environment, which borrows the dependencies of this one."""
    build = [sys.executable, "-m", "pip", "wheel", "--no-deps", "-q", "-w", str(tmp_path), str(ROOT)]
    subprocess.run(build, check=True)
    wheel = next(tmp_path.glob("ptdebug-*.whl"))
    tops = {name.partition("/")[0] for name in zipfile.ZipFile(wheel).namelist()}
    assert {top for top in tops if not top.endswith(".dist-info")} == {"ptdebug"}
    place = tmp_path / "environment"
    venv.create(place, with_pip=True)
    python = place / "bin" / "python"
    subprocess.run([python, "-m", "pip", "install", "-q", "--no-deps", str(wheel)], check=True)
    spec = importlib.util.find_spec("torch")
    assert spec is not None and spec.origin is not None
    packages = Path(spec.origin).parents[1]
    borrowed = place / "borrowed"
    borrowed.mkdir()
    for item in packages.iterdir():
        if "ptdebug" not in item.name:
            (borrowed / item.name).symlink_to(item)
    (next(place.glob("lib/python*/site-packages")) / "borrowed.pth").write_text(f"{borrowed}\n")
    program = tmp_path / "program.py"
    program.write_text((ROOT / "examples" / "mlp_batches.py").read_text())
    command = [place / "bin" / "ptdebug", "run", str(program)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("close to eager: True") == 6
    where = subprocess.run([python, "-c", "import ptdebug; print(ptdebug.__file__)"], cwd=tmp_path, capture_output=True,
                           text=True, check=True).stdout
    assert where.startswith(str(place))
    shown = subprocess.run([place / "bin" / "ptdebug", "show", "@", "--json"], cwd=tmp_path, capture_output=True)
    assert shown.returncode == 0, shown.stderr
