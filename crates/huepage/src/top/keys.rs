//! Keys of the terminal, as the model takes them, and the list of them for the user.

use ratatui::crossterm::event::{Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};

/// A key that means something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TopKey {
    Up,
    Down,
    PageUp,
    PageDown,
    Home,
    End,
    /// Into what is selected.
    Enter,
    Back,
    /// Out of the program, whatever is shown.
    Quit,
    Char(char),
}

/// What each key does, for the page of help.
pub const HELP: [(&str, &str); 9] = [
    ("up down, j k", "select a row; page up, page down, home, end: further"),
    ("enter", "the selected process by address: where it is in the cache"),
    ("esc, left", "back to the list"),
    ("p n c m", "sort by pid, name, compliance, estimated miss rate"),
    ("l r s", "sort by bytes in the cache, recolouring, size"),
    ("i", "the other way round"),
    ("f", "freeze all policies of the daemon, or let them go on"),
    ("space", "let the screen stand still, or go on"),
    ("q, ctrl-c", "quit"),
];

/// The key of an event; `None` for what is no key or means nothing.
pub fn key(event: &Event) -> Option<TopKey> {
    let Event::Key(KeyEvent { code, modifiers, kind, .. }) = event else { return None };
    if *kind == KeyEventKind::Release {
        return None;
    }
    let control = modifiers.contains(KeyModifiers::CONTROL);
    match code {
        KeyCode::Char('c' | 'd') if control => Some(TopKey::Quit),
        KeyCode::Char(_) if control => None,
        KeyCode::Up | KeyCode::Char('k') => Some(TopKey::Up),
        KeyCode::Down | KeyCode::Char('j') => Some(TopKey::Down),
        KeyCode::PageUp => Some(TopKey::PageUp),
        KeyCode::PageDown => Some(TopKey::PageDown),
        KeyCode::Home | KeyCode::Char('g') => Some(TopKey::Home),
        KeyCode::End | KeyCode::Char('G') => Some(TopKey::End),
        KeyCode::Enter | KeyCode::Right => Some(TopKey::Enter),
        KeyCode::Esc | KeyCode::Left | KeyCode::Backspace => Some(TopKey::Back),
        KeyCode::Char(c) => Some(TopKey::Char(*c)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(code: KeyCode, modifiers: KeyModifiers) -> Option<TopKey> {
        key(&Event::Key(KeyEvent::new(code, modifiers)))
    }

    #[test]
    fn keys_are_told_apart() {
        let none = KeyModifiers::NONE;
        assert_eq!(of(KeyCode::Char('q'), none), Some(TopKey::Char('q')));
        assert_eq!(of(KeyCode::Char('c'), none), Some(TopKey::Char('c')));
        assert_eq!(of(KeyCode::Char('c'), KeyModifiers::CONTROL), Some(TopKey::Quit));
        assert_eq!(of(KeyCode::Char('z'), KeyModifiers::CONTROL), None);
        assert_eq!(of(KeyCode::Char('j'), none), of(KeyCode::Down, none));
        assert_eq!(of(KeyCode::F(5), none), None);
        assert_eq!(key(&Event::Resize(80, 24)), None);
    }
}
