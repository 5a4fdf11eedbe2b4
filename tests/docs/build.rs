//! Makes documentation tests of the Rust code in the documentation. The page shows how a block is tested:
//!
//! - An excerpt follows a link to a file. `python/tests/test_docs.py` compares the two.
//! - A program starts with `use`. It runs, and so do its functions with `#[test]`; a program that needs a redis-server is
//!   only compiled.
//! - A fragment is any other block. It is compiled as the body of a function that has `client` and the functions in
//!   [`BEFORE_FRAGMENT`].
//!
//! rustdoc cannot read the pages themselves, because it takes the indented block in a tab for Rust.

use std::{
    env, fs, io,
    path::{Path, PathBuf},
};

const BEFORE_FRAGMENT: &str = "
    use std::time::Duration;
    use redlock::*;
    fn build_report<A>(_: A) -> Result<(), LockError> { Ok(()) }
    fn save_config<A>(_: A) -> Result<(), LockError> { Ok(()) }
    fn run<A, B>(_: A, _: B) -> Result<(), LockError> { Ok(()) }
    async fn fragment(client: Client) -> Result<(), LockError> {";
const AFTER_FRAGMENT: &str = "
    Ok(()) }
    fn main() {}";

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
    /// The line of the page in which the code begins.
    line: usize,
    code: String,
}

fn main() -> io::Result<()> {
    let root = Path::new("../..");
    let mut tests = String::new();
    for page in pages(root)? {
        println!("cargo:rerun-if-changed={}", page.display());
        let name = page.strip_prefix(root).expect("a page below the root").with_extension("").display().to_string();
        let name = name.to_lowercase().replace(|letter: char| !letter.is_ascii_alphanumeric(), "_");
        for block in blocks(&fs::read_to_string(&page)?) {
            let needs_server = block.code.contains("redis://");
            tests += &doc_test(&name, &block, if needs_server { "rust,no_run" } else { "rust" });
        }
    }
    assert!(tests.contains("docs_quickstart_") && tests.contains("core_readme_"), "the pages have blocks of Rust");
    println!("cargo:rerun-if-changed={}", root.join("docs").display());
    println!("cargo:rerun-if-changed=build.rs");

    let broken = blocks(BROKEN);
    let outcomes = ["rust,compile_fail", "rust,compile_fail", "rust,should_panic", "rust,should_panic"];
    assert_eq!(broken.len(), outcomes.len());
    for (block, outcome) in broken.iter().zip(outcomes) {
        tests += &doc_test("broken", block, outcome);
    }
    fs::write(PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR")).join("blocks.rs"), tests)
}

/// `README.md`, the `README.md` of each folder, and the pages in `docs`.
fn pages(root: &Path) -> io::Result<Vec<PathBuf>> {
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

/// The blocks of Rust of a page that are no excerpts, without the indentation of a tab.
fn blocks(page: &str) -> Vec<Block> {
    let mut found = Vec::new();
    let mut lines = (1..).zip(page.lines());
    let mut is_excerpt = false;
    while let Some((line, text)) = lines.next() {
        let Some((indent, language)) = text.split_once("```") else {
            if !text.is_empty() {
                is_excerpt = text.contains("[`") && text.contains("`](") && text.ends_with("):");
            }
            continue;
        };
        let code = lines.by_ref().map(|(_, text)| text).take_while(|text| text.trim() != "```");
        let code: Vec<&str> = code.map(|text| text.strip_prefix(indent).unwrap_or(text)).collect();
        if language.split(',').next() == Some("rust") && !is_excerpt {
            found.push(Block { line: line + 1, code: code.join("\n") });
        }
        is_excerpt = false;
    }
    found
}

/// A module whose documentation is the test of a block. `attributes` are those of rustdoc, such as `no_run`.
fn doc_test(page: &str, Block { line, code }: &Block, attributes: &str) -> String {
    let code = if !code.starts_with("use ") {
        format!("{BEFORE_FRAGMENT}\n{code}\n{AFTER_FRAGMENT}")
    } else if code.contains("#[test]") {
        // A documentation test has no test harness.
        let tests = code.split("#[test]\nfn ").skip(1).filter_map(|rest| rest.split_once('('));
        let calls: Vec<_> = tests.map(|(name, _)| format!("Termination::report({name}())")).collect();
        let main = format!(
            "fn main() {{ use std::process::{{ExitCode, Termination}}; assert_eq!([{}], [ExitCode::SUCCESS; {}]); }}",
            calls.join(", "),
            calls.len()
        );
        format!("{}\n{main}", code.replace("#[test]\n", ""))
    } else {
        code.clone()
    };
    let text = format!("```{attributes}\n{code}\n```");
    format!("#[doc = {text:?}]\npub mod {page}_{line} {{}}\n")
}
