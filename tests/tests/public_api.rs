//! The public API of the crate is written down in `core/public-api.txt`, so that a change of it is seen in a review.
//! `REDLOCK_UPDATE=1 cargo test -p redlock-tests --test public_api` writes it anew.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::Command,
};

/// The version of rustdoc's JSON that the crate `public-api` reads.
const FORMAT: u64 = 57;

#[test]
fn the_public_api_is_the_one_that_is_written_down() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let target = env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from).join("public-api");
    let made = Command::new(env!("CARGO"))
        .current_dir(&root)
        .args(["rustdoc", "--package", "redlock-core", "--lib", "--quiet"])
        .args(["--", "-Z", "unstable-options", "--output-format", "json", "--cap-lints", "allow"])
        // JSON is an unstable option; this lets a stable rustdoc write it. In a folder of its own, because cargo compiles
        // again what was compiled without this variable.
        .env("RUSTC_BOOTSTRAP", "1")
        .env("CARGO_TARGET_DIR", &target)
        .status()
        .unwrap();
    assert!(made.success(), "rustdoc fails");

    let json = target.join("doc/redlock.json");
    let content: serde_json::Value = serde_json::from_str(&fs::read_to_string(&json).unwrap()).unwrap();
    let format = content["format_version"].as_u64();
    if format != Some(FORMAT) {
        println!(
            "skipped: rustdoc of this toolchain writes format {format:?}, and the crate public-api reads {FORMAT}"
        );
        return;
    }
    let api = public_api::Builder::from_rustdoc_json(&json)
        .omit_blanket_impls(true)
        .omit_auto_trait_impls(true)
        .omit_auto_derived_impls(true)
        .build()
        .unwrap();
    compare(&root.join("core/public-api.txt"), &api.to_string());
}

fn compare(file: &Path, api: &str) {
    if env::var_os("REDLOCK_UPDATE").is_some() {
        fs::write(file, api).unwrap();
        return;
    }
    let known = fs::read_to_string(file).unwrap();
    let lines = |text: &str, other: &str, sign: &str| -> Vec<String> {
        text.lines()
            .filter(|line| !other.lines().any(|known| known == *line))
            .map(|line| format!("{sign} {line}"))
            .collect()
    };
    let mut changes = lines(&known, api, "-");
    changes.extend(lines(api, &known, "+"));
    assert!(
        changes.is_empty(),
        "the public API has changed. If that is intended, run this test with REDLOCK_UPDATE=1, and tell users in \
         CHANGELOG.md.\n{}",
        changes.join("\n")
    );
}
