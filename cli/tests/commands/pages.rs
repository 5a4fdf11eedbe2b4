//! `explain`, `completions`, `man`, and colours.

use std::{env, fs, path::Path, process::id};

use redlock_tests::server::Server;

use crate::support::{command, on, run};

/// The words that a function of the core spells its variants with.
fn words(file: &str, function: &str) -> Vec<String> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../core/src").join(file);
    let source = fs::read_to_string(path).expect("a source");
    let body = source.split_once(function).unwrap_or_else(|| panic!("{file} has no {function}")).1;
    let body = body.split_once("\n    }\n").expect("an end").0;
    let arms = body.lines().filter_map(|line| line.split_once("=> \"")?.1.split_once('"'));
    arms.map(|(word, _)| word.to_owned()).collect()
}

#[test]
fn every_code_reason_outcome_and_event_is_explained() {
    for (kind, file, function, least) in [
        ("error", "error.rs", "pub fn code(&self)", 8),
        ("lost", "error.rs", "pub fn as_str(self)", 8),
        ("release", "tenure/release.rs", "pub fn as_str(self)", 3),
        ("event", "event.rs", "pub fn kind(&self)", 9),
    ] {
        let words = words(file, function);
        assert!(words.len() >= least, "{file}: {words:?}");
        for word in words {
            let ran = run(command(&["explain", &format!("{kind}:{word}")]));
            assert_eq!(ran.code, 0, "{kind}:{word}: {ran:?}");
            assert!(ran.stdout.contains(&word) && ran.stdout.lines().count() > 2, "{ran:?}");
            assert_eq!(run(command(&["explain", &word])).code, 0);
        }
    }
}

#[test]
fn node_warnings_are_explained_and_unknown_words_refused() {
    let warnings = run(command(&["explain", "node_warning"])).stdout;
    assert!(warnings.contains("maxmemory-policy") && warnings.contains("polls instead"), "{warnings}");
    let causes = run(command(&["explain", "unavailable"])).stdout;
    assert!(causes.contains("connection refused"), "{causes}");
    assert!(!causes.contains("](#"), "{causes}");
    let unknown = run(command(&["explain", "no-such-code"]));
    assert_eq!((unknown.code, unknown.stdout.as_str()), (64, ""));
    let all = run(command(&["explain"])).stdout;
    assert!(all.lines().any(|line| line == "lost:deleted"), "{all}");
    let objects = run(command(&["explain", "--json"])).stdout;
    assert!(objects.lines().all(|line| line.starts_with("{\"code\":")), "{objects}");
    assert_eq!(objects.lines().count(), all.lines().count());
    let object = run(command(&["explain", "lost:deleted", "--json"])).object();
    assert_eq!((&object["kind"], &object["code"]), (&"lost".into(), &"deleted".into()));
}

#[test]
fn completions_exist_for_each_shell() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let ran = run(command(&["completions", shell]));
        assert_eq!(ran.code, 0);
        for word in ["acquire", "inspect", "exec"] {
            assert!(ran.stdout.contains(word), "{shell}: {word}");
        }
    }
    assert_eq!(run(command(&["completions", "tcl"])).code, 64);
}

#[test]
fn each_command_has_a_manual_page() {
    let folder = env::temp_dir().join(format!("redlock-man-{}", id()));
    assert_eq!(run(command(&["man", folder.to_str().expect("a path")])).code, 0);
    for command in ["", "-acquire", "-extend", "-release", "-ls", "-inspect", "-explain", "-exec", "-top", "-bench"] {
        let page = fs::read_to_string(folder.join(format!("redlock{command}.1"))).expect("a page");
        assert!(page.contains(".SH"), "{command}");
    }
    fs::remove_dir_all(&folder).expect("the folder");
}

#[test]
fn colours_are_for_terminals_only_unless_they_are_demanded() {
    let server = Server::start();
    assert!(!on(&server, &["inspect", "x"]).stdout.contains('\x1b'));
    let demanded = on(&server, &["inspect", "x", "--color", "always"]);
    assert!(demanded.stdout.contains("\x1b[1m"), "{demanded:?}");
    let mut never = command(&["inspect", "x", "--color", "never"]);
    never.env("REDLOCK_URL", server.url());
    assert!(!run(never).stdout.contains('\x1b'));
}

/// `script` gives the program a terminal.
#[test]
#[cfg(target_os = "linux")]
fn no_color_turns_colours_off_on_a_terminal() {
    let server = Server::start();
    let on_terminal = |no_color: Option<&str>| {
        let line = format!("{} inspect x", env!("CARGO_BIN_EXE_redlock"));
        let mut script = std::process::Command::new("script");
        script.args(["--quiet", "--return", "--command", &line, "/dev/null"]).env("REDLOCK_URL", server.url());
        script.env_remove("NO_COLOR");
        if let Some(value) = no_color {
            script.env("NO_COLOR", value);
        }
        run(script).stdout
    };
    assert!(on_terminal(None).contains("\x1b[1m"));
    assert!(on_terminal(Some("")).contains("\x1b[1m"), "an empty value does not count");
    assert!(!on_terminal(Some("1")).contains('\x1b'));
}
