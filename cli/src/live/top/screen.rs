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

#[cfg(all(test, unix))]
mod tests {
    use std::{
        env,
        process::{Command, exit},
        sync::mpsc::channel,
        thread,
        time::Duration,
    };

    use redlock_tests::terminal::Pty;

    use super::Screen;

    /// In the process that panics, where.
    const PANICS: &str = "REDLOCK_TEST_PANICS";
    /// Far above the needs of a busy machine.
    const LIMIT: Duration = Duration::from_secs(60);

    /// Takes the terminal, and panics while the view has it.
    fn panic_with_the_screen(place: &str) -> ! {
        let mut screen = Screen::take().expect("a terminal");
        screen.draw(|frame| frame.render_widget("the view", frame.area())).expect("a terminal");
        match place {
            "view" => panic!("on purpose"),
            _ => _ = thread::spawn(|| panic!("on purpose")).join(),
        }
        // Nothing is dropped: the panic alone has given the terminal back.
        exit(if Screen::is_taken() { 1 } else { 3 })
    }

    /// Runs itself on a terminal, since the process of a test has none.
    #[test]
    fn a_panic_gives_the_terminal_back_before_its_message() {
        if let Ok(place) = env::var(PANICS) {
            panic_with_the_screen(&place);
        }
        // A panic of a test ends its process with 101.
        for (place, code) in [("view", 101), ("thread", 3)] {
            let mut itself = Command::new(env::current_exe().expect("a program"));
            let name = "live::top::screen::tests::a_panic_gives_the_terminal_back_before_its_message";
            itself.args(["--exact", name, "--nocapture", "--test-threads=1"]).env(PANICS, place);
            itself.env("TERM", "xterm-256color").env("RUST_BACKTRACE", "0");
            let (sender, shown) = channel();
            // Fails if the test has failed.
            let (terminal, mut child) = Pty::start(itself, (80, 24), move |bytes| _ = sender.send(bytes.to_vec()));
            let mut parser = vt100::Parser::default();
            let mut had_screen = false;
            // Until the last process on the terminal has ended.
            while let Ok(bytes) = shown.recv_timeout(LIMIT) {
                for byte in bytes {
                    parser.process(&[byte]);
                    had_screen |= parser.screen().alternate_screen() && parser.screen().contents().contains("the view");
                }
            }
            let status = child.wait().expect("a status");
            let text = parser.screen().contents();
            assert_eq!(status.code(), Some(code), "{place}: {text}");
            assert!(had_screen, "{place}: it never had the terminal: {text}");
            assert!(!parser.screen().alternate_screen() && !parser.screen().hide_cursor(), "{place}: {text}");
            assert!(text.contains("on purpose") && !text.contains("the view"), "{place}: {text}");
            assert!(terminal.is_usual(), "{place}: {text}");
        }
    }
}
