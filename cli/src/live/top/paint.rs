//! Lines of text for the screen: cut to its width, free of control characters, and in colours if the user wants them.

use ratatui::{
    style::{Color, Modifier, Style},
    text::{Line, Span},
};
use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

use crate::table::visible;

/// What a text means. Without colours, bold type and signs must do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Tone {
    #[default]
    Plain,
    Strong,
    Faint,
    Warning,
    Bad,
}

/// How texts are drawn.
#[derive(Clone, Copy, Debug)]
pub(super) struct Paint {
    pub(super) colors: bool,
}

impl Paint {
    pub(super) fn style(self, tone: Tone) -> Style {
        let style = match tone {
            Tone::Plain | Tone::Warning => Style::new(),
            Tone::Strong | Tone::Bad => Style::new().add_modifier(Modifier::BOLD),
            Tone::Faint => Style::new().add_modifier(Modifier::DIM),
        };
        match tone {
            Tone::Warning if self.colors => style.fg(Color::Yellow),
            Tone::Bad if self.colors => style.fg(Color::Red),
            _ => style,
        }
    }

    /// A line in one tone, cut to a width.
    pub(super) fn line(self, text: &str, tone: Tone, width: usize) -> Line<'static> {
        Line::styled(cut(&visible(text), width), self.style(tone))
    }

    /// Parts beside each other, two spaces apart, as many as fit.
    pub(super) fn parts(self, parts: Vec<(String, Tone)>, width: usize) -> Line<'static> {
        let (mut spans, mut used) = (Vec::new(), 0);
        for (text, tone) in parts.into_iter().filter(|(text, _)| !text.is_empty()) {
            let gap = if spans.is_empty() { 0 } else { 2 };
            let left = width.saturating_sub(used + gap);
            let text = visible(&text);
            // Half a number would be wrong, so only the first part is cut.
            if left == 0 || (text.width() > left && !spans.is_empty()) {
                break;
            }
            let text = cut(&text, left);
            used += gap + text.width();
            spans.push(Span::raw(" ".repeat(gap)));
            spans.push(Span::styled(text, self.style(tone)));
        }
        Line::from(spans)
    }

    /// A text in lines of a width, broken between words.
    pub(super) fn wrapped(self, text: &str, tone: Tone, width: usize, most: usize) -> Vec<Line<'static>> {
        let mut lines = vec![String::new()];
        for word in visible(text).split(' ') {
            let last = lines.len() - 1;
            let is_empty = lines[last].is_empty();
            if is_empty || lines[last].width() + 1 + word.width() <= width {
                if !is_empty {
                    lines[last].push(' ');
                }
                lines[last].push_str(word);
            } else {
                lines.push(word.to_owned());
            }
        }
        let is_cut = lines.len() > most;
        lines.truncate(most.max(1));
        if let Some(last) = lines.last_mut().filter(|_| is_cut) {
            *last = cut(&format!("{last}…"), width);
        }
        lines.into_iter().map(|line| self.line(&line, tone, width)).collect()
    }
}

/// A text cut to a width, with an ellipsis if something is missing.
pub(super) fn cut(text: &str, width: usize) -> String {
    if text.width() <= width {
        return text.to_owned();
    }
    let (mut kept, mut used) = (String::new(), 1);
    for character in text.chars() {
        used += character.width().unwrap_or_default();
        if used > width {
            break;
        }
        kept.push(character);
    }
    if width > 0 {
        kept.push('…');
    }
    kept
}

/// A column of a table.
#[derive(Clone, Copy, Debug)]
pub(super) struct Column {
    pub(super) title: &'static str,
    /// The least width of the screen at which it is shown.
    pub(super) from: usize,
    /// Whether its cells are aligned to the right.
    pub(super) right: bool,
    /// Whether it is cut if there is too little room.
    pub(super) gives: bool,
}

/// The widths of the columns that are shown on a screen of a width: those of their widest cells, less for those that give.
/// A column that is not shown has none.
fn widths<'a>(
    columns: &[Column],
    rows: &(impl Iterator<Item = &'a [String]> + Clone),
    screen: usize,
) -> Vec<Option<usize>> {
    let widest = |at: usize| rows.clone().map(|row| row[at].width()).max().unwrap_or_default();
    let mut widths: Vec<Option<usize>> = columns
        .iter()
        .enumerate()
        .map(|(at, column)| (column.from <= screen).then(|| widest(at).max(column.title.width())))
        .collect();
    loop {
        let shown = widths.iter().flatten().count();
        let all = widths.iter().flatten().sum::<usize>() + 2 * shown.saturating_sub(1);
        // The widest one gives first.
        let giving = columns.iter().zip(&widths).enumerate().filter(|(_, (column, _))| column.gives);
        let widest = giving.filter_map(|(at, (_, width))| Some(((*width)?, at))).max();
        match widest {
            Some((width, at)) if all > screen && width > 4 => widths[at] = Some(width - 1),
            _ => return widths,
        }
    }
}

/// The cells of a row as one text.
fn aligned<'a>(cells: impl Iterator<Item = &'a str>, columns: &[Column], widths: &[Option<usize>]) -> String {
    let shown = cells.zip(columns).zip(widths).filter_map(|((cell, column), width)| {
        let width = (*width)?;
        let cell = cut(cell, width);
        let space = " ".repeat(width.saturating_sub(cell.width()));
        Some(if column.right { space + &cell } else { cell + &space })
    });
    shown.collect::<Vec<_>>().join("  ")
}

/// A table below its titles. If a line is selected, all have a place for its sign.
pub(super) fn table(
    columns: &[Column],
    rows: &[(Vec<String>, Tone)],
    selected: Option<usize>,
    paint: Paint,
    screen: usize,
) -> Vec<Line<'static>> {
    let [none, sign] = if selected.is_some() { ["  ", "> "] } else { ["", ""] };
    let wide = widths(columns, &rows.iter().map(|(row, _)| row.as_slice()), screen.saturating_sub(none.len()));
    let titles = aligned(columns.iter().map(|column| column.title), columns, &wide);
    let mut lines = vec![paint.line(&format!("{none}{titles}"), Tone::Strong, screen)];
    for (at, (row, tone)) in rows.iter().enumerate() {
        let text = aligned(row.iter().map(String::as_str), columns, &wide);
        let line = if selected == Some(at) {
            let space = " ".repeat(screen.saturating_sub(text.width() + sign.len()));
            paint.line(&format!("{sign}{text}{space}"), *tone, screen).patch_style(Modifier::REVERSED)
        } else {
            paint.line(&format!("{none}{text}"), *tone, screen)
        };
        lines.push(line);
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_cut_by_their_width() {
        for (text, width, expected) in [
            ("abc", 3, "abc"),
            ("abcd", 3, "ab…"),
            ("日本語", 5, "日本…"),
            ("日本語", 4, "日…"),
            ("ab", 1, "…"),
            ("ab", 0, ""),
        ] {
            assert_eq!(cut(text, width), expected, "{text} {width}");
        }
    }

    #[test]
    fn words_are_wrapped_and_the_rest_is_cut() {
        let paint = Paint { colors: false };
        let wrapped = |most| -> Vec<String> {
            let lines = paint.wrapped("one two three four", Tone::Plain, 8, most);
            lines.iter().map(ToString::to_string).collect()
        };
        assert_eq!(wrapped(9), ["one two", "three", "four"]);
        assert_eq!(wrapped(2), ["one two", "three…"]);
    }

    #[test]
    fn the_widest_column_gives_first() {
        let column = |title, gives| Column { title, from: 0, right: false, gives };
        let columns = [column("A", true), column("B", false), column("C", true)];
        let row = ["a".repeat(30), "b".repeat(5), "c".repeat(10)];
        let widths = |screen| widths(&columns, &[row.as_slice()].into_iter(), screen);
        assert_eq!(widths(80), [Some(30), Some(5), Some(10)]);
        assert_eq!(widths(40), [Some(21), Some(5), Some(10)]);
        assert_eq!(widths(25), [Some(8), Some(5), Some(8)]);
    }
}
