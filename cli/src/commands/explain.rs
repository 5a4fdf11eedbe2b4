//! `redlock explain`: the entries of the trouble-shooting page, built in.

use crate::{exit_code::ExitStatusCode, failure::Failure, talk::Talk};

/// The page, by a link to `docs/`, which the packed crate replaces with the page. A test demands an entry for each code,
/// reason, outcome and event.
const PAGE: &str = include_str!("../../troubleshooting.md");
const _: () = assert!(PAGE.len() > 1000, "cli/troubleshooting.md is no link: check it out with core.symlinks=true");

/// The sections that have an entry for each word.
const SECTIONS: [(&str, &str); 4] = [
    ("error", "Errors"),
    ("lost", "Reasons of a loss"),
    ("release", "Outcomes of a release"),
    ("event", "Log lines and events"),
];

/// Explain an error code, a reason of a loss, an outcome of a release or an event
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  redlock explain unavailable
  redlock explain lost:deleted
  redlock explain            # lists all words")]
pub(crate) struct ExplainOptions {
    /// The word, such as timeout; with its kind if it has several meanings: error:lost, lost:deleted, release:lost,
    /// event:lost
    code: Option<String>,
}

/// An entry of the page.
struct Entry {
    kind: &'static str,
    section: &'static str,
    word: &'static str,
    text: &'static str,
}

pub(crate) fn run(options: &ExplainOptions, talk: &Talk) -> Result<ExitStatusCode, Failure> {
    let Some(code) = &options.code else {
        for entry in entries() {
            if talk.json() {
                talk.object(&entry.json())?;
            } else {
                talk.line(&format!("{}:{}", entry.kind, entry.word))?;
            }
        }
        return Ok(ExitStatusCode::DONE);
    };
    let found: Vec<Entry> = entries().into_iter().filter(|entry| entry.is(code)).collect();
    if found.is_empty() {
        return Err(Failure::usage(format!("there is no {code:?}. Run redlock explain for all words.")));
    }
    for entry in &found {
        if talk.json() {
            talk.object(&entry.json())?;
        } else {
            talk.line(&talk.bold(&format!("{} › {}", entry.section, entry.word)))?;
            talk.line(&format!("\n{}\n", plain(entry.text).trim()))?;
        }
    }
    if !talk.json() && found.iter().any(|entry| entry.word == "unavailable") {
        let causes = section("Causes of `unavailable`").unwrap_or_default();
        talk.line(&format!("{}\n\n{}", talk.bold("Causes of unavailable"), plain(causes).trim()))?;
    }
    Ok(ExitStatusCode::DONE)
}

impl Entry {
    fn json(&self) -> serde_json::Value {
        serde_json::json!({"kind": self.kind, "code": self.word, "text": plain(self.text).trim()})
    }

    /// Whether a word of the user names this entry.
    fn is(&self, code: &str) -> bool {
        code == self.word || code.split_once(':') == Some((self.kind, self.word))
    }
}

/// The text of a section of the second level.
fn section(title: &str) -> Option<&'static str> {
    PAGE.split("\n## ").find_map(|part| part.strip_prefix(title)?.strip_prefix('\n'))
}

fn entries() -> Vec<Entry> {
    let mut all = Vec::new();
    for (kind, title) in SECTIONS {
        for part in section(title).unwrap_or_default().split("\n### `").skip(1) {
            if let Some((word, text)) = part.split_once('`') {
                all.push(Entry { kind, section: title, word, text: text.trim_start_matches(':') });
            }
        }
    }
    all
}

/// Markdown for a terminal: without the targets of links, and without fences and emphasis.
fn plain(markdown: &str) -> String {
    let mut text = String::new();
    let mut rest = markdown;
    while let Some((before, after)) = rest.split_once('[') {
        text.push_str(before);
        match after.split_once("](").and_then(|(label, target)| Some((label, target.split_once(')')?.1))) {
            Some((label, behind)) if !label.contains('[') => {
                text.push_str(label);
                rest = behind;
            }
            _ => {
                text.push('[');
                rest = after;
            }
        }
    }
    text.push_str(rest);
    let lines = text.lines().filter(|line| !line.trim_start().starts_with("```"));
    lines.map(|line| line.replace("**", "")).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_and_fences_are_plain_text() {
        let markdown = "See the [list](#causes),\nand `x[1]` **now**:\n\n```text\nneeds … of …\n```\n";
        assert_eq!(plain(markdown), "See the list,\nand `x[1]` now:\n\nneeds … of …");
    }

    #[test]
    fn every_section_has_entries() {
        for (kind, title) in SECTIONS {
            assert!(entries().iter().any(|entry| entry.kind == kind), "{title}");
        }
        assert!(section("Causes of `unavailable`").is_some());
    }
}
