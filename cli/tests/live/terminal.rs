//! A pseudo-terminal with a program on it: its keys, and what its screen shows.

use std::{
    num::NonZero,
    process::Command,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    time::Instant,
};

use redlock_tests::terminal::Pty;
use vt100::Parser;

use crate::support::{LIMIT, Running};

/// A program on a terminal of its own. Dropping it kills the program.
pub(crate) struct Terminal {
    pub(crate) running: Running,
    pty: Pty,
    screen: Arc<(Mutex<Parser>, Condvar)>,
}

impl Terminal {
    /// Starts a program on a terminal of this size, as the leader of its session.
    pub(crate) fn start(command: Command, columns: u16, rows: u16) -> Self {
        let screen = Arc::new((Mutex::new(Parser::new(cells(rows), cells(columns), 0)), Condvar::new()));
        let shown = screen.clone();
        let (pty, child) = Pty::start(command, (columns, rows), move |bytes| {
            shown.0.lock().unwrap_or_else(PoisonError::into_inner).process(bytes);
            shown.1.notify_all();
        });
        Self { running: Running(child), pty, screen }
    }

    pub(crate) fn press(&mut self, keys: &str) {
        self.pty.press(keys);
    }

    /// Gives the terminal another size.
    pub(crate) fn resize(&mut self, columns: u16, rows: u16) {
        self.parser().screen_mut().set_size(cells(rows), cells(columns));
        self.pty.resize((columns, rows));
    }

    /// Waits until the screen has a text.
    pub(crate) fn shows(&self, text: &str) {
        self.until(text, |screen| screen.contents().contains(text));
    }

    /// Waits until the screen does not have a text any more.
    pub(crate) fn hides(&self, text: &str) {
        self.until(&format!("no {text}"), |screen| !screen.contents().contains(text));
    }

    /// Waits until the screen is as wanted.
    pub(crate) fn until(&self, what: &str, is_so: impl Fn(&vt100::Screen) -> bool) {
        let start = Instant::now();
        let mut parser = self.parser();
        while !is_so(parser.screen()) {
            let left = LIMIT.saturating_sub(start.elapsed());
            assert!(!left.is_zero(), "waited in vain for {what:?}:\n{}", parser.screen().contents());
            parser = self.screen.1.wait_timeout(parser, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Waits until the program has ended. Returns its code, once the terminal has its screen, its cursor and its modes
    /// again.
    pub(crate) fn ends(&mut self) -> Option<i32> {
        let code = self.running.code();
        self.until("the terminal is restored", |screen| !screen.alternate_screen() && !screen.hide_cursor());
        assert!(self.pty.is_usual(), "the modes of the terminal are not restored");
        code
    }

    fn parser(&self) -> MutexGuard<'_, Parser> {
        self.screen.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn cells(count: u16) -> NonZero<u16> {
    NonZero::new(count).expect("a size")
}
