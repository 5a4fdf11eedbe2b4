//! The terminal while the view has it: another screen, without echo, without a cursor. Whatever ends the program, the
//! terminal gets back what it had.

use std::{
    io::{self, Stdout, stdout},
    panic,
    sync::atomic::{AtomicBool, Ordering::SeqCst},
};

use ratatui::{
    Frame, Terminal,
    backend::CrosstermBackend,
    crossterm::{
        cursor::{Hide, Show},
        execute,
        terminal::{Clear, ClearType, EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode},
    },
};

/// Whether the view has the terminal. It is one for the whole process, and so is this.
static TAKEN: AtomicBool = AtomicBool::new(false);

/// The terminal. Dropping it gives the terminal back.
pub(super) struct Screen(Terminal<CrosstermBackend<Stdout>>);

impl Screen {
    /// Takes the terminal. A panic gives it back before it prints its message.
    pub(super) fn take() -> io::Result<Self> {
        let report = panic::take_hook();
        panic::set_hook(Box::new(move |panic| {
            give_back();
            report(panic);
        }));
        let taken = take();
        let screen = Terminal::new(CrosstermBackend::new(stdout())).map(Self);
        if taken.is_err() || screen.is_err() {
            give_back();
        }
        taken.and(screen)
    }

    /// Gives the terminal back while `run` runs.
    #[cfg(unix)]
    pub(super) fn without(&mut self, run: impl FnOnce()) -> io::Result<()> {
        give_back();
        run();
        take()?;
        // Draws all cells again.
        self.0 = Terminal::new(CrosstermBackend::new(stdout()))?;
        Ok(())
    }

    /// Whether the view still has the terminal. After a panic of another thread it does not.
    pub(super) fn is_taken() -> bool {
        TAKEN.load(SeqCst)
    }

    pub(super) fn draw(&mut self, draw: impl FnOnce(&mut Frame<'_>)) -> io::Result<()> {
        self.0.draw(draw).map(|_| ())
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        give_back();
    }
}

fn take() -> io::Result<()> {
    TAKEN.store(true, SeqCst);
    enable_raw_mode()?;
    execute!(stdout(), EnterAlternateScreen, Hide, Clear(ClearType::All))
}

fn give_back() {
    if TAKEN.swap(false, SeqCst) {
        // Both fail only if the terminal is gone.
        let _ = execute!(stdout(), LeaveAlternateScreen, Show);
        let _ = disable_raw_mode();
    }
}
