//! A pseudo-terminal with a program on it: its keys, and what its screen shows.

use std::{
    fs::{File, OpenOptions},
    io::{Read, Write},
    num::NonZero,
    os::{fd::OwnedFd, unix::process::CommandExt},
    path::PathBuf,
    process::Command,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    thread::spawn,
    time::Instant,
};

use rustix::{
    process::{ioctl_tiocsctty, setsid},
    pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt},
    termios::{LocalModes, Winsize, tcgetattr, tcsetwinsize},
};
use vt100::Parser;

use crate::support::{LIMIT, Running};

/// A program on a terminal of its own. Dropping it kills the program.
pub(crate) struct Terminal {
    pub(crate) running: Running,
    keys: File,
    screen: Arc<(Mutex<Parser>, Condvar)>,
    path: PathBuf,
}

impl Terminal {
    /// Starts a program on a terminal of this size, as the leader of its session.
    #[allow(unsafe_code, reason = "std starts no session")]
    pub(crate) fn start(mut command: Command, columns: u16, rows: u16) -> Self {
        let keys = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).expect("a terminal");
        grantpt(&keys).expect("a terminal");
        unlockpt(&keys).expect("a terminal");
        let path = PathBuf::from(ptsname(&keys, Vec::new()).expect("a name").into_string().expect("a name"));
        let side = OpenOptions::new().read(true).write(true).open(&path).expect("a terminal");
        let stream = || OwnedFd::from(side.try_clone().expect("a stream"));
        command.stdin(stream()).stdout(stream()).stderr(stream());
        // SAFETY: two system calls. The standard input is the terminal by then.
        unsafe {
            command.pre_exec(|| {
                setsid()?;
                ioctl_tiocsctty(rustix::stdio::stdin())?;
                Ok(())
            })
        };
        tcsetwinsize(&side, size(columns, rows)).expect("a terminal");
        let running = Running::start(command);
        let keys = File::from(keys);
        let screen = Arc::new((Mutex::new(Parser::new(cells(rows), cells(columns), 0)), Condvar::new()));
        let (mut output, shown) = (keys.try_clone().expect("a stream"), screen.clone());
        spawn(move || {
            let mut bytes = [0; 4096];
            // It fails once the last process on the terminal has ended.
            while let Ok(read @ 1..) = output.read(&mut bytes) {
                shown.0.lock().unwrap_or_else(PoisonError::into_inner).process(&bytes[..read]);
                shown.1.notify_all();
            }
        });
        Self { running, keys, screen, path }
    }

    pub(crate) fn press(&mut self, keys: &str) {
        self.keys.write_all(keys.as_bytes()).expect("a terminal");
    }

    /// Gives the terminal another size.
    pub(crate) fn resize(&mut self, columns: u16, rows: u16) {
        self.parser().screen_mut().set_size(cells(rows), cells(columns));
        tcsetwinsize(&self.keys, size(columns, rows)).expect("a terminal");
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
        let side = OpenOptions::new().read(true).write(true).open(&self.path).expect("a terminal");
        let modes = tcgetattr(&side).expect("modes").local_modes;
        assert!(modes.contains(LocalModes::ICANON | LocalModes::ECHO | LocalModes::ISIG), "{modes:?}");
        code
    }

    fn parser(&self) -> MutexGuard<'_, Parser> {
        self.screen.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn cells(count: u16) -> NonZero<u16> {
    NonZero::new(count).expect("a size")
}

fn size(columns: u16, rows: u16) -> Winsize {
    Winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 }
}
