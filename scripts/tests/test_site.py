"""scripts/site checks the pages of a small project and builds its site, with a stand-in for zensical."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
# The stand-in: writes a page with the headings of each page of Markdown, and what the test wants in addition.
TOOL = """#!{python}
import pathlib, re, sys
assert sys.argv[1:3] == ["build", "--strict"], sys.argv
config = pathlib.Path(sys.argv[sys.argv.index("--config-file") + 1])
site = config.parent / "site"
extra = pathlib.Path("{folder}/extra")
for page in (config.parent / "docs").rglob("*.md"):
    path = page.relative_to(config.parent / "docs").with_suffix("")
    html = site / (path.parent if path.name in ("index", "README") else path) / "index.html"
    html.parent.mkdir(parents=True, exist_ok=True)
    headings = re.findall("^#+ (.*)$", page.read_text(), re.M)
    ids = [re.sub(r"[^\\w -]", "", heading.lower()).replace(" ", "-") for heading in headings]
    added = extra.read_text() if extra.exists() and path.name == "index" else ""
    html.write_text("".join(f'<h1 id="{{id}}">' for id in ids if id != "lost") + added)
(site / "sitemap.xml").write_text("")
(site / "nav").write_text(config.read_text())
for name in ("theme.css", "theme.js"):
    given = pathlib.Path("{folder}") / name
    (site / name).write_text(given.read_text() if given.exists() else "")
sys.exit(pathlib.Path("{folder}/fails").exists())
"""
FILES = {
    "Cargo.toml": 'repository = "https://example.org/project"\n',
    "CHANGELOG.md": "# Changelog\n\n[a page](docs/guide.md)\n",
    "core/a.rs": "// [start:part]\n",
    "scripts/pictures": "",
    "bench/figures.json": '{"bars": {}}',
    "mkdocs.yml": """site_name: project
nav:
  - Start:
      - Overview: index.md
      - A guide: guide.md
      - "API: Rust": api/rust/redlock/index.html
      - Changelog: changelog.md
      - Decisions:
          - adr/README.md
          - adr/0001-one.md
theme:
  name: material
""",
    "docs/adr/README.md": "# Decisions\n\n1. [One of them](0001-one.md)\n",
    "docs/adr/0001-one.md": "# 1. One of them\n\n[up](../guide.md)\n",
    "docs/guide.md": "# A guide\n\n## `a_b` and more: yes/no\n\n[start](index.md)\n",
    "docs/picture.svg": "<svg/>",
    "docs/dark.svg": "<svg/>",
    "docs/index.md": """# Start

[guide](guide.md#a_b-and-more-yesno), [code](../core/a.rs), [folder](../core), [log](../CHANGELOG.md#changelog),
[decisions](adr), [web](https://example.org), `[no link](nowhere.md)`.

```
[no link](nowhere.md)
## no heading
```

=== "Python"

    ```python
    --8<-- "core/a.rs:part"
    ```

<picture>
  <source media="(prefers-color-scheme: dark)" srcset="dark.svg">
  <img alt="A [picture] of
  something" src="picture.svg">
</picture>

[Plot: A bar for each](https://redlock.dev/plots/bars-light.svg)
""",
}


class Project:
    """A folder with pages and scripts/site."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        for path, text in FILES.items():
            self.write(path, text)
        self.write("zensical", TOOL.format(python=sys.executable, folder=folder))
        (folder / "zensical").chmod(0o755)
        shutil.copy(ROOT / "scripts/site", folder / "scripts")

    def write(self, path: str, text: str) -> None:
        (self.folder / path).parent.mkdir(parents=True, exist_ok=True)
        (self.folder / path).write_text(text)

    def read(self, path: str) -> str:
        return (self.folder / path).read_text()

    def add(self, path: str, text: str) -> None:
        self.write(path, self.read(path) + text)

    def site(self, *tool: str) -> list[str]:
        """Runs the script. Returns the lines that it prints; those of a success are left out."""
        command = [sys.executable, self.folder / "scripts/site", *tool]
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=60)
        usual = ("the reference of ", "target/site: ")
        lines = [line for line in done.stdout.splitlines() if line and not line.startswith(usual)]
        assert bool(done.returncode) == bool(lines), done.stdout
        return lines

    def build(self) -> list[str]:
        return self.site(str(self.folder / "zensical"))


@pytest.fixture
def project(tmp_path: Path) -> Project:
    """A project whose pages have no problem."""
    return Project(tmp_path)


def test_pages_without_problems_pass(project: Project) -> None:
    assert project.site() == []
    assert project.build() == []


def test_links_of_readmes_are_checked(project: Project) -> None:
    of = "https://example.org/project/blob/main/docs"
    project.write("core/README.md", f"[a]({of}/guide.md)\n[b]({of}/guide.md#no)\n[c]({of}/no.md)\n[d](no.rs)\n")
    assert project.site() == [
        f"core/README.md:2: the link {of}/guide.md#no names no heading",
        f"core/README.md:3: the link {of}/no.md leads nowhere",
        "core/README.md:4: the link no.rs leads nowhere",
    ]


@pytest.mark.parametrize(
    ("path", "added", "found"),
    [
        ("docs/guide.md", "[a](nowhere.md)", "docs/guide.md:6: the link nowhere.md leads nowhere"),
        ("docs/guide.md", "[a](../../x)", "docs/guide.md:6: the link ../../x leaves the repository"),
        ("docs/guide.md", "[a](index.md#nope)", "docs/guide.md:6: the link index.md#nope names no heading"),
        ("docs/guide.md", "[a](#nope)", "docs/guide.md:6: the link #nope names no heading"),
        ("docs/guide.md", "[a](../CHANGELOG.md#x)", "docs/guide.md:6: the link ../CHANGELOG.md#x names no heading"),
        ("docs/guide.md", '<img src="no.svg">', "docs/guide.md:6: the link no.svg leads nowhere"),
        ("docs/guide.md", '--8<-- "no.rs"', "docs/guide.md:6: the snippet's file no.rs does not exist"),
        ("docs/guide.md", '--8<-- "core/a.rs:no"', "docs/guide.md:6: core/a.rs has no section no"),
        (
            "docs/guide.md",
            "<picture></picture>",
            "docs/guide.md: a <picture> has another form than <source media=dark srcset=…>, <img alt=… src=…>",
        ),
        ("docs/guide.md", "![a](plots/no-light.svg)", "docs/guide.md:6: figures.json has no plot no"),
        ("docs/new.md", "# New", "mkdocs.yml: new.md does not stand in nav"),
        (
            "docs/adr/0002-two.md",
            "# 2. Two",
            "docs/adr/README.md: this line is missing: 2. [Two](0002-two.md)",
        ),
    ],
)
def test_a_problem_of_a_page_is_reported(project: Project, path: str, added: str, found: str) -> None:
    project.write(path, (project.read(path) if (project.folder / path).exists() else "") + added + "\n")
    assert found in project.site()
    assert found in project.build()


def test_problems_of_the_navigation_are_reported(project: Project) -> None:
    text = project.read("mkdocs.yml")
    project.write("mkdocs.yml", text.replace("theme:", "  - nowhere.md\n  - Again: guide.md\ntheme:"))
    assert project.site() == [
        "mkdocs.yml: guide.md stands in nav more than once",
        "mkdocs.yml: nowhere.md stands in nav, but does not exist",
    ]


def test_a_plot_that_no_page_shows_is_reported(project: Project) -> None:
    project.write("bench/figures.json", '{"bars": {}, "growth": {}}')
    assert project.site() == ["figures.json: no page shows the plot growth"]


def test_repeated_headings_have_numbers(project: Project) -> None:
    project.add("docs/guide.md", "\n## Twice\n\n## Twice\n\n[second](#twice-1)\n")
    assert project.site() == []


def test_the_copy_links_to_the_code_host_and_shows_both_pictures(project: Project) -> None:
    assert project.build() == []
    page = project.read("target/site-work/docs/index.md")
    assert "[code](https://example.org/project/blob/main/core/a.rs)" in page
    assert "[folder](https://example.org/project/tree/main/core)" in page
    assert "[log](changelog.md#changelog)" in page
    assert "[decisions](adr/README.md)" in page
    assert page.count("[no link](nowhere.md)") == 2
    assert "![A (picture) of something](picture.svg#only-light)![A (picture) of something](dark.svg#only-dark)" in page
    plot = "![A bar for each](plots/bars-light.svg#only-light)![A bar for each](plots/bars-dark.svg#only-dark)"
    assert plot in page
    assert "[a page](guide.md)" in project.read("target/site-work/docs/changelog.md")
    assert "[up](../guide.md)" in project.read("target/site-work/docs/adr/0001-one.md")


def test_the_copy_is_indented_as_pythons_markdown_needs_it(project: Project) -> None:
    project.write(
        "docs/guide.md",
        """# A guide

1. One,
   and more.
   - Two

     ```
     code
       more
     ```
   - Three
     of two lines
2. Four

   Five

=== "Python"

    - Six
      and more

      Seven

Eight
    and more
""",
    )
    project.write("docs/index.md", "# Start\n")
    project.write("bench/figures.json", "{}")
    assert project.build() == []
    assert (
        project.read("target/site-work/docs/guide.md")
        == """# A guide

1. One,
   and more.
    - Two

        ```
        code
          more
        ```
    - Three
     of two lines
2. Four

    Five

=== "Python"

    - Six
      and more

        Seven

Eight
    and more
"""
    )


def test_a_build_that_fails_is_reported(project: Project) -> None:
    project.write("fails", "")
    assert project.build() == ["docs: zensical build --strict failed, see above"]


@pytest.mark.parametrize(
    ("html", "found"),
    [
        ('<a href="nowhere/">', "index.html: the link nowhere/ leads nowhere: there is no nowhere"),
        ('<a href="guide/#x">', "index.html: the link guide/#x leads nowhere: there is no guide/index.html#x"),
        ('<img src="a.png">', "index.html: the link a.png leads nowhere: there is no a.png"),
        ('<img src="https://x.org/a.png">', "index.html: loads https://x.org/a.png from another server"),
        ('<script src="//x.org/a.js"></script>', "index.html: loads //x.org/a.js from another server"),
        ('<link rel="stylesheet" href="http://x.org/a">', "index.html: loads http://x.org/a from another server"),
        ('<link rel="preconnect" href="https://x.org">', "index.html: loads https://x.org from another server"),
        ('<p style="background: url(https://x.org/a)">', "index.html: loads https://x.org/a from another server"),
        ("<p>a [link](x.md)<code>**</code>", "index.html: has Markdown in its text: 'a [link](x.md)'"),
        ("<p>| a |\n|---|</p>", "index.html: has Markdown in its text: '| a |\\n|---|'"),
    ],
)
def test_a_problem_of_what_was_built_is_reported(project: Project, html: str, found: str) -> None:
    project.write("extra", html)
    assert project.build() == [found]


def test_links_to_other_servers_are_allowed(project: Project) -> None:
    project.write(
        "extra", '<a href="https://example.org"><a href="guide/#a-guide"><link rel="canonical" href="https://x.org">'
    )
    assert project.build() == []


def test_a_heading_that_the_tool_loses_is_reported(project: Project) -> None:
    project.add("docs/guide.md", "\n## Lost\n")
    assert project.build() == ["docs/guide.md: the heading #lost is none on the site, or has another anchor there"]


def test_styles_and_scripts_that_load_from_elsewhere_are_reported(project: Project) -> None:
    project.write("theme.css", "a { background: url(https://x.org/a) } b { background: url(data:x) }")
    project.write("theme.js", 'a = "http://www.w3.org/2000/svg"; b = "https://x.org/b.js"')
    assert project.build() == [
        "theme.css: may load https://x.org/a from another server",
        "theme.js: may load https://x.org/b.js from another server",
    ]


def test_a_page_that_makes_the_theme_load_something_is_reported(project: Project) -> None:
    project.write("theme.js", 'a = "https://unpkg.com/mermaid@12/mermaid.js"')
    assert project.build() == []
    project.write("extra", '<pre class="mermaid">')
    (line,) = project.build()
    assert line.startswith("index.html: makes the theme load https://unpkg.com/mermaid@12/mermaid.js")


def test_a_reference_is_copied_and_loads_nothing_from_elsewhere(project: Project) -> None:
    assert project.build() == []
    assert "api/rust" not in project.read("target/site/nav")
    project.write(
        "target/doc/redlock/index.html", '<link rel="preload" href="https://x.org/a.woff2"><a href="https://x.org">'
    )
    project.write("target/doc/a.css", "@font-face { src: url(https://x.org/a.woff2) } a { color: red }")
    assert project.build() == []
    assert "api/rust/redlock/index.html" in project.read("target/site/nav")
    assert project.read("target/site/api/rust/redlock/index.html") == '<a href="https://x.org">'
    assert project.read("target/site/api/rust/a.css") == " a { color: red }"


@pytest.mark.parametrize(
    ("path", "before", "after"),
    [
        ("core/src/config/mod.rs", "drift: 0.1,", "drift: 0.2,"),
        ("core/src/quorum/ballot.rs", "self.ttl / 20", "self.ttl / 10"),
    ],
)
def test_pictures_follow_the_constants_of_the_core(tmp_path: Path, path: str, before: str, after: str) -> None:
    for folder in ("core/src", "docs/assets"):
        shutil.copytree(ROOT / folder, tmp_path / folder)
    (tmp_path / "scripts").mkdir()
    shutil.copy(ROOT / "scripts/pictures", tmp_path / "scripts")

    def call(*options: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, tmp_path / "scripts/pictures", *options], capture_output=True, text=True, timeout=60
        )

    assert call("--check").stdout == ""
    source = tmp_path / path
    assert source.read_text().count(before) == 1
    source.write_text(source.read_text().replace(before, after))
    assert "life-of-a-lease-light.svg: is not what scripts/pictures draws" in call("--check").stdout
    assert call().returncode == 0
    assert call("--check").stdout == ""
    source.write_text(source.read_text().replace(after, "gone"))
    assert "change scripts/pictures" in call("--check").stderr
