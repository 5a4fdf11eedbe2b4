//! A pseudo-terminal with a program on it, as the leader of its session.

use std::{
    fs::{File, OpenOptions},
    io::{Read, Write},
    os::{fd::OwnedFd, unix::process::CommandExt},
    path::PathBuf,
    process::{Child, Command},
    thread::spawn,
};

use rustix::{
    process::{ioctl_tiocsctty, setsid},
    pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt},
    termios::{LocalModes, Winsize, tcgetattr, tcsetwinsize},
};

/// A terminal. The caller ends the program.
#[derive(Debug)]
pub struct Pty {
    keys: File,
    path: PathBuf,
}

impl Pty {
    /// Starts a program on a terminal with this number of columns and rows. `shown` gets what it prints, until the last
    /// process on the terminal has ended.
    #[allow(unsafe_code, reason = "std starts no session")]
    pub fn start(
        mut command: Command,
        (columns, rows): (u16, u16),
        mut shown: impl FnMut(&[u8]) + Send + 'static,
    ) -> (Self, Child) {
        let keys = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).expect("a terminal");
        grantpt(&keys).expect("a terminal");
        unlockpt(&keys).expect("a terminal");
        let path = PathBuf::from(ptsname(&keys, Vec::new()).expect("a name").into_string().expect("a name"));
        let terminal = Self { keys: File::from(keys), path };
        let side = terminal.side();
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
        terminal.resize((columns, rows));
        let child = command.spawn().expect("the program starts");
        let mut output = terminal.keys.try_clone().expect("a stream");
        spawn(move || {
            let mut bytes = [0; 4096];
            while let Ok(read @ 1..) = output.read(&mut bytes) {
                shown(&bytes[..read]);
            }
        });
        (terminal, child)
    }

    /// The path of the terminal.
    pub fn path(&self) -> &PathBuf {
        &self.path
    }

    /// Types keys.
    pub fn press(&mut self, keys: &str) {
        self.keys.write_all(keys.as_bytes()).expect("a terminal");
    }

    /// Gives the terminal this number of columns and rows.
    pub fn resize(&self, (columns, rows): (u16, u16)) {
        let size = Winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
        tcsetwinsize(&self.keys, size).expect("a terminal");
    }

    /// Whether lines are edited, keys are echoed, and Ctrl-C sends a signal.
    pub fn is_usual(&self) -> bool {
        let modes = tcgetattr(self.side()).expect("modes").local_modes;
        modes.contains(LocalModes::ICANON | LocalModes::ECHO | LocalModes::ISIG)
    }

    /// The side of the program.
    fn side(&self) -> File {
        OpenOptions::new().read(true).write(true).open(&self.path).expect("a terminal")
    }
}
