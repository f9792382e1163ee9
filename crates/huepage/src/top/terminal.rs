//! The terminal while the screen is shown, and giving it back: when the screen is dropped, when any
//! thread panics, and whatever error ends the program.

use std::io::{self, IsTerminal as _, Stdout, stdin, stdout};
use std::panic;
use std::sync::Once;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use ratatui::backend::CrosstermBackend;
use ratatui::crossterm::event::{self, Event};
use ratatui::crossterm::terminal::{
    EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode,
};
use ratatui::crossterm::{cursor, execute};
use ratatui::layout::Size;
use ratatui::{Frame, Terminal};

/// Whether the terminal is ours just now.
static TAKEN: AtomicBool = AtomicBool::new(false);
static HOOK: Once = Once::new();

/// Whether there is a terminal to draw on and to read keys from.
pub fn is_there() -> bool {
    stdin().is_terminal() && stdout().is_terminal()
}

/// The terminal, ours until this is dropped.
#[derive(Debug)]
pub struct Screen {
    terminal: Terminal<CrosstermBackend<Stdout>>,
}

impl Screen {
    /// Takes it.
    ///
    /// # Errors
    /// When it cannot be set up; it is as before then.
    pub fn open() -> io::Result<Screen> {
        restore_on_panic();
        TAKEN.store(true, Ordering::SeqCst);
        let taken = enable_raw_mode()
            .and_then(|()| execute!(stdout(), EnterAlternateScreen, cursor::Hide))
            .and_then(|()| Terminal::new(CrosstermBackend::new(stdout())));
        taken.map(|terminal| Screen { terminal }).inspect_err(|_| give_back())
    }

    /// Draws a frame of the size that the terminal has now.
    ///
    /// # Errors
    /// When the terminal is gone.
    pub fn draw(&mut self, draw: impl FnOnce(&mut Frame)) -> io::Result<()> {
        self.terminal.draw(draw).map(|_| ())
    }

    /// Columns and rows of the terminal now.
    ///
    /// # Errors
    /// When the terminal is gone, or was given back since another thread panicked.
    pub fn size(&self) -> io::Result<Size> {
        if !TAKEN.load(Ordering::SeqCst) {
            return Err(io::Error::other("another thread failed"));
        }
        self.terminal.size()
    }

    /// What the user does, if anything within a time.
    ///
    /// # Errors
    /// When the terminal is gone.
    pub fn event(&self, within: Duration) -> io::Result<Option<Event>> {
        if event::poll(within)? { event::read().map(Some) } else { Ok(None) }
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        give_back();
    }
}

/// What was said on the way to a panic is to be read on the terminal as it was.
fn restore_on_panic() {
    HOOK.call_once(|| {
        let before = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            give_back();
            before(info);
        }));
    });
}

/// As it was; only once, and whatever fails on the way, for it may be gone.
fn give_back() {
    if TAKEN.swap(false, Ordering::SeqCst) {
        let _ = execute!(stdout(), LeaveAlternateScreen, cursor::Show);
        let _ = disable_raw_mode();
    }
}
