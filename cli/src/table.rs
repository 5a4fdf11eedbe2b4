//! A table for people: columns of equal width, headings in bold.

use unicode_width::UnicodeWidthStr;

use crate::{failure::Failure, talk::Talk};

/// Rows of as many cells as there are headings.
pub(crate) struct Table {
    headings: Vec<&'static str>,
    rows: Vec<Vec<String>>,
}

impl Table {
    pub(crate) fn new(headings: Vec<&'static str>) -> Self {
        Self { headings, rows: Vec::new() }
    }

    /// Adds a row. Control characters are shown and not sent: a name from a server must not control the terminal.
    pub(crate) fn row(&mut self, cells: &[String]) {
        self.rows.push(cells.iter().map(|cell| visible(cell)).collect());
    }

    /// Prints the table, if it has rows.
    pub(crate) fn print(&self, talk: &Talk) -> Result<(), Failure> {
        if self.rows.is_empty() {
            return Ok(());
        }
        let width = |column: usize| {
            let cells = self.rows.iter().map(|row| row[column].width());
            cells.max().unwrap_or_default().max(self.headings[column].width())
        };
        let widths: Vec<usize> = (0..self.headings.len()).map(width).collect();
        talk.line(&talk.bold(&aligned(self.headings.iter().copied(), &widths)))?;
        for row in &self.rows {
            talk.line(&aligned(row.iter().map(String::as_str), &widths))?;
        }
        Ok(())
    }
}

/// A line of cells, without spaces at its end.
fn aligned<'a>(cells: impl Iterator<Item = &'a str>, widths: &[usize]) -> String {
    let padded = cells.zip(widths).map(|(cell, width)| cell.to_owned() + &" ".repeat(width - cell.width()));
    padded.collect::<Vec<_>>().join("  ").trim_end().to_owned()
}

/// A text with its control characters escaped.
pub(crate) fn visible(text: &str) -> String {
    let shown = |character: char| {
        if character.is_control() { character.escape_default().to_string() } else { character.to_string() }
    };
    text.chars().map(shown).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_are_aligned_by_their_width_on_a_terminal() {
        assert_eq!(aligned(["é", "日", "x"].into_iter(), &[3, 4, 5]), "é    日    x");
    }

    #[test]
    fn names_cannot_control_the_terminal() {
        assert_eq!(visible("a\u{1b}[2Jb\n\u{9b}é"), "a\\u{1b}[2Jb\\n\\u{9b}é");
    }
}
