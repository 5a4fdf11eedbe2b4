"""`release.emulated.cpython` builds a complete Python or none, and does not use this machine's libraries."""

from __future__ import annotations

from pathlib import Path

import pytest

from release import debian, toolchain
from release.emulated import cpython
from release.refused import Refused

MAKEFILE = """
all:
\tmkdir -p build/lib.linux Modules
\techo module > Modules/zlib.so
\tln -sf ../../Modules/zlib.so build/lib.linux/zlib.so
\tprintf build/lib.linux > pybuilddir.txt
\t$$CC --version > python
\tchmod +x python
"""


@pytest.fixture
def sources(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """Minimal sources. Returns Python's configure and Makefile, which a test can change."""
    python = {"configure": 'test -z "$CFLAGS$LDFLAGS" && test "$PKG_CONFIG" = /bin/false', "Makefile": MAKEFILE}

    def source(suite: str, names: list[str], folder: Path) -> None:
        assert (suite, names) == ("trixie", ["python3.13", "zlib"])
        for name, files in {
            "Python-3.13.5": python,
            "zlib-1.3.1": {"configure": "exit 0", "Makefile": "libz.a:\n\ttouch libz.a\n"},
        }.items():
            (folder / name / "Lib" / "test").mkdir(parents=True)
            (folder / name / "Lib" / "os.py").touch()
            for file, text in files.items():
                (folder / name / file).write_text(text if file == "Makefile" else f"#!/bin/sh\n{text}\n")
            (folder / name / "configure").chmod(0o755)

    zig = tmp_path / "tools" / "lib" / "python3" / "site-packages" / "ziglang" / "zig"
    zig.parent.mkdir(parents=True)
    zig.write_text('#!/bin/sh\necho "zig $*"\n')
    zig.chmod(0o755)
    monkeypatch.setattr(toolchain, "tools", lambda: tmp_path / "tools" / "bin")
    monkeypatch.setattr(debian, "source", source)
    monkeypatch.setenv("CFLAGS", "-I/usr/include")
    monkeypatch.setenv("LDFLAGS", "-L/usr/lib")
    return python


def test_the_files_of_a_built_python(tmp_path: Path, sources: dict[str, str]) -> None:
    place = tmp_path / "made" / "python"
    cpython.build("x86_64-linux-musl", place, Path("/the/loader"))
    files = {path.relative_to(place).as_posix(): path for path in place.rglob("*") if path.is_file()}
    assert set(files) == {"bin/python3.13", "lib/python3.13/os.py", "lib/python3.13/lib-dynload/zlib.so"}
    assert not files["lib/python3.13/lib-dynload/zlib.so"].is_symlink()
    said = files["bin/python3.13"].read_text()
    assert "cc -target x86_64-linux-musl -dynamic -Wl,--dynamic-linker=/the/loader" in said
    assert [path.name for path in place.parent.iterdir()] == ["python"]


@pytest.mark.parametrize("file", ["configure", "Makefile"])
def test_a_failed_build_names_its_log_and_leaves_nothing(tmp_path: Path, sources: dict[str, str], file: str) -> None:
    sources[file] = {"configure": "echo the reason; exit 1", "Makefile": "all:\n\techo the reason; exit 1\n"}[file]
    place = tmp_path / "made" / "python"
    with pytest.raises(Refused, match=r"cannot be built for x86_64-linux-gnu\.2\.31: see .*python\.log"):
        cpython.build("x86_64-linux-gnu.2.31", place)
    assert [path.name for path in place.parent.iterdir()] == ["python.log"]
    assert "the reason" in (place.parent / "python.log").read_text()
