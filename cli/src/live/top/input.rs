//! Keys, and what they mean.

use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers};

use super::state::{Action, Step};

/// The keys, for the help: what is pressed, and what it does.
pub(super) const KEYS: [(&str, &str); 13] = [
    ("Up Down, k j", "move"),
    ("PgUp PgDn", "move by a page"),
    ("Home End, g G", "first and last"),
    ("Enter", "the holders of a lock, node by node"),
    ("/", "filter: a part of the name, or a pattern with * ? [a-z]"),
    ("s", "order: waiters, age, ttl, name"),
    ("a", "find all locks, also those without waiters"),
    ("c", "clients and their settings"),
    ("r", "look now"),
    ("p, Space", "pause, continue"),
    ("?", "this help"),
    ("Esc", "close, forget the filter, quit"),
    ("q, Ctrl-C", "quit"),
];

/// What a key means. While the filter is typed, characters belong to it.
pub(super) fn action(key: KeyEvent, is_typing: bool) -> Option<Action> {
    if key.kind == KeyEventKind::Release {
        return None;
    }
    if key.modifiers.contains(KeyModifiers::CONTROL) {
        return match key.code {
            KeyCode::Char('c') => Some(Action::Quit),
            KeyCode::Char('z') => Some(Action::Suspend),
            KeyCode::Char('u') if is_typing => Some(Action::EraseAll),
            KeyCode::Char('b') if !is_typing => Some(Action::Move(Step::PageUp)),
            KeyCode::Char('f') if !is_typing => Some(Action::Move(Step::PageDown)),
            _ => None,
        };
    }
    match key.code {
        KeyCode::Esc => Some(Action::Back),
        KeyCode::Enter => Some(Action::Enter),
        KeyCode::Up => Some(Action::Move(Step::Up)),
        KeyCode::Down => Some(Action::Move(Step::Down)),
        KeyCode::PageUp => Some(Action::Move(Step::PageUp)),
        KeyCode::PageDown => Some(Action::Move(Step::PageDown)),
        KeyCode::Home => Some(Action::Move(Step::First)),
        KeyCode::End => Some(Action::Move(Step::Last)),
        KeyCode::Backspace if is_typing => Some(Action::Erase),
        KeyCode::Char(character) if is_typing => Some(Action::Type(character)),
        KeyCode::Char(character) => plain(character),
        _ => None,
    }
}

fn plain(character: char) -> Option<Action> {
    Some(match character {
        'q' => Action::Quit,
        'k' => Action::Move(Step::Up),
        'j' => Action::Move(Step::Down),
        'g' => Action::Move(Step::First),
        'G' => Action::Move(Step::Last),
        '/' => Action::Filter,
        's' => Action::Order,
        'a' => Action::Scan,
        'c' => Action::Clients,
        'r' => Action::Look,
        'p' | ' ' => Action::Pause,
        '?' => Action::Help,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pressed(code: KeyCode, modifiers: KeyModifiers, is_typing: bool) -> Option<Action> {
        action(KeyEvent::new(code, modifiers), is_typing)
    }

    #[test]
    fn characters_belong_to_the_filter_while_it_is_typed() {
        for character in ['q', 's', ' ', '?', '/', 'é'] {
            let typed = pressed(KeyCode::Char(character), KeyModifiers::NONE, true);
            assert_eq!(typed, Some(Action::Type(character)));
        }
        assert_eq!(pressed(KeyCode::Char('q'), KeyModifiers::NONE, false), Some(Action::Quit));
        assert_eq!(pressed(KeyCode::Char('é'), KeyModifiers::NONE, false), None);
        assert_eq!(pressed(KeyCode::Backspace, KeyModifiers::NONE, false), None);
    }

    #[test]
    fn control_c_quits_everywhere() {
        for is_typing in [false, true] {
            let quit = pressed(KeyCode::Char('c'), KeyModifiers::CONTROL, is_typing);
            assert_eq!(quit, Some(Action::Quit));
        }
    }

    #[test]
    fn a_key_that_is_released_does_nothing() {
        let released = KeyEvent::new_with_kind(KeyCode::Char('q'), KeyModifiers::NONE, KeyEventKind::Release);
        assert_eq!(action(released, false), None);
    }
}
