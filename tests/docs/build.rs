//! Makes documentation tests of the Rust code in the documentation. The page shows how a block is tested:
//!
//! - An excerpt follows a link to a file. `python/tests/test_docs.py` compares the two.
//! - The first line of a program, after comments, is a `use`. The program runs, and so do its functions with
//!   `#[test]`. A program that needs a redis-server is only compiled.
//! - A fragment is any other block. It is compiled as the body of a function that has `client` and the functions in
//!   [`BEFORE_FRAGMENT`].
//!
//! rustdoc cannot read the pages themselves, because it takes the indented block in a tab for Rust.

use std::{
    env, fs, io,
    path::{Path, PathBuf},
};

const ROOT: &str = "../..";
/// Each is one line, so that all lines keep their numbers.
const BEFORE_FRAGMENT: &str = "use std::time::Duration; use redlock::*; \
    fn build_report<A>(_: A) -> Result<(), LockError> { Ok(()) } \
    fn save_config<A>(_: A) -> Result<(), LockError> { Ok(()) } \
    fn run<A, B>(_: A, _: B) -> Result<(), LockError> { Ok(()) } \
    async fn fragment(client: Client) -> Result<(), LockError> { ";
const AFTER_FRAGMENT: &str = "Ok(()) } fn main() {}";

/// A page of which each block must fail, or the tests of the other pages could find nothing.
const BROKEN: &str = r#"
=== "Rust"

    ```rust
    use redlock::Config;

    fn main() {
        Config::new(["memory://"]).watchdoc = 1;
    }
    ```

```rust
client.lock("x", LockOptions::default())?.aquire().await?;
```

```rust
use redlock::{Client, Config, LockError, LockOptions};

fn main() {
    Client::new(Config::new(["memory://"])).unwrap().lock("", LockOptions::default()).unwrap();
}
```

```rust
use redlock::Config;

#[test]
fn fails() {
    assert!(Config::new(["memory://"]).urls.is_empty());
}
```

[`x.rs`](../x.rs):

```rust
an excerpt
```
"#;

/// A block of Rust that is no excerpt.
struct Block {
    /// The line of the page with the opening fence.
    fence: usize,
    /// Without the indentation of a tab.
    lines: Vec<String>,
}

fn main() -> io::Result<()> {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-changed={ROOT}/docs");
    let folder = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    let mut modules = Vec::new();
    for page in pages()? {
        println!("cargo:rerun-if-changed={}", page.display());
        let blocks = blocks(&fs::read_to_string(&page)?);
        let blocks: Vec<_> = blocks.iter().map(|block| (block, block.attributes())).collect();
        if !blocks.is_empty() {
            let page = page.strip_prefix(ROOT).expect("a page below the root");
            modules.push(write_tests(&folder, page, &blocks)?);
        }
    }
    for page in ["readme", "core_readme", "docs_quickstart", "docs_rust"] {
        assert!(modules.iter().any(|module| module.contains(&format!("mod {page} "))), "no Rust in {page}");
    }

    let broken = blocks(BROKEN);
    let outcomes = ["rust,compile_fail", "rust,compile_fail", "rust,should_panic", "rust,should_panic"];
    assert_eq!(broken.len(), outcomes.len());
    let broken: Vec<_> = broken.iter().zip(outcomes).collect();
    modules.push(write_tests(&folder, Path::new("broken.md"), &broken)?);
    fs::write(folder.join("modules.rs"), modules.concat())
}

/// `README.md`, the `README.md` of each folder, and the pages in `docs`.
fn pages() -> io::Result<Vec<PathBuf>> {
    let root = Path::new(ROOT);
    let mut pages = vec![root.join("README.md")];
    for folder in fs::read_dir(root)? {
        pages.push(folder?.path().join("README.md"));
    }
    for page in fs::read_dir(root.join("docs"))? {
        pages.push(page?.path());
    }
    pages.retain(|page| page.extension().is_some_and(|extension| extension == "md") && page.is_file());
    pages.sort();
    Ok(pages)
}

/// The blocks of Rust of a page that are no excerpts.
fn blocks(page: &str) -> Vec<Block> {
    let mut found = Vec::new();
    let mut lines = (1..).zip(page.lines());
    let mut is_excerpt = false;
    while let Some((fence, text)) = lines.next() {
        let Some((indent, language)) = text.split_once("```") else {
            if !text.is_empty() {
                is_excerpt = text.contains("[`") && text.contains("`](") && text.ends_with("):");
            }
            continue;
        };
        let code = lines.by_ref().map(|(_, text)| text).take_while(|text| text.trim() != "```");
        let code = code.map(|text| text.strip_prefix(indent).unwrap_or(text).to_owned()).collect();
        if language.split(',').next() == Some("rust") && !is_excerpt {
            found.push(Block { fence, lines: code });
        }
        is_excerpt = false;
    }
    found
}

impl Block {
    /// Whether its first line, after comments, is an import.
    fn is_program(&self) -> bool {
        let first = self.lines.iter().find(|line| !line.is_empty() && !line.starts_with("//"));
        first.is_some_and(|line| line.starts_with("use "))
    }

    /// The attributes of its documentation test.
    fn attributes(&self) -> &'static str {
        if self.lines.iter().any(|line| line.contains("redis://")) { "rust,no_run" } else { "rust" }
    }

    /// The program that rustdoc tests. It has the lines of the block, and one more.
    fn program(&self) -> Vec<String> {
        let mut lines = self.lines.clone();
        let mut last = String::new();
        if !self.is_program() {
            lines[0].insert_str(0, BEFORE_FRAGMENT);
            last.push_str(AFTER_FRAGMENT);
        } else if lines.iter().any(|line| line == "#[test]") {
            last = call_tests(&mut lines);
        }
        lines.push(last);
        lines
    }
}

/// Makes plain functions of a program's tests, and returns a `main` that calls them: a documentation test has no test
/// harness.
fn call_tests(lines: &mut [String]) -> String {
    let mut calls = Vec::new();
    while let Some(at) = lines.iter().position(|line| line == "#[test]") {
        lines[at].clear();
        let name = lines[at + 1].strip_prefix("fn ").and_then(|rest| rest.split_once('('));
        let (name, _) = name.expect("a function follows #[test]");
        calls.push(format!("Termination::report({name}())"));
    }
    let body = format!("assert_eq!([{}], [ExitCode::SUCCESS; {}]);", calls.join(", "), calls.len());
    format!("fn main() {{ use std::process::{{ExitCode, Termination}}; {body} }}")
}

/// Writes a page with the programs of the blocks, which keep the numbers of their lines. Returns a module with this
/// page as its documentation. The name of a block's test has the path of the page and the line of the fence.
fn write_tests(folder: &Path, page: &Path, blocks: &[(&Block, &str)]) -> io::Result<String> {
    let mut lines = Vec::new();
    for (block, attributes) in blocks {
        assert!(lines.len() < block.fence, "{}:{}: needs an empty line above", page.display(), block.fence);
        lines.resize(block.fence - 1, String::new());
        lines.push(format!("```{attributes}"));
        lines.extend(block.program());
        lines.push("```".to_owned());
    }
    let path = folder.join(page);
    fs::create_dir_all(path.parent().expect("a page in a folder"))?;
    // rustdoc counts the lines of an included file from 0.
    fs::write(&path, format!("\n{}", lines.join("\n")))?;
    let name = page.with_extension("").display().to_string().to_lowercase();
    let name = name.replace(|letter: char| !letter.is_ascii_alphanumeric(), "_");
    let text = format!("include_str!(concat!(env!(\"OUT_DIR\"), \"/{}\"))", page.display());
    Ok(format!("#[doc = {text}]\npub mod {name} {{}}\n"))
}
