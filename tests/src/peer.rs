//! Another lock library, in a process of its own that takes orders, one line each; `tests/interop/README.md` defines
//! them. A session stands for one owner there. The orders of one session run one after the other, those of several
//! sessions at once if the library has threads.

use std::{
    cell::RefCell,
    collections::HashMap,
    io::{BufRead, BufReader, Write},
    process::{Child, ChildStdin, Stdio},
    sync::mpsc::{Receiver, channel},
    thread::spawn,
};

use crate::contender::{PATIENCE, shell};

/// The process. It is killed when dropped, as by a crash.
#[derive(Debug)]
pub struct Peer {
    child: Child,
    orders: RefCell<ChildStdin>,
    answers: Receiver<(String, Answer)>,
    /// Replies that arrived while the test waited for another session's.
    early: RefCell<HashMap<String, Vec<Answer>>>,
}

/// The result of an order.
#[derive(Clone, Debug)]
pub struct Answer {
    /// When, in ns of `CLOCK_MONOTONIC`.
    pub at: u64,
    /// The value, or the library's error.
    pub end: Result<String, String>,
}

impl Answer {
    /// The value; panics on a failure.
    pub fn value(self) -> String {
        self.end.expect("an order that succeeds")
    }
}

impl Peer {
    /// Starts it, with `words` as further arguments of the command.
    pub fn start(name: &str, command: &str, words: &[&str]) -> Self {
        let mut child = shell(name, &format!("{command} serve"));
        let mut child = child.args(words).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("a shell");
        let (orders, lines) = (child.stdin.take().expect("piped"), child.stdout.take().expect("piped"));
        let (sender, answers) = channel();
        spawn(move || {
            for line in BufReader::new(lines).lines().map_while(Result::ok) {
                // Skip lines that are no replies: the library may print others.
                if let Some(answer) = parse(&line)
                    && sender.send(answer).is_err()
                {
                    break;
                }
            }
        });
        Self { child, orders: RefCell::new(orders), answers, early: RefCell::default() }
    }

    /// Sends an order without waiting for its reply.
    pub fn tell(&self, session: &str, order: &str) {
        let line = format!("{session} {order}\n");
        self.orders.borrow_mut().write_all(line.as_bytes()).expect("the peer lives");
    }

    /// The next reply to a session. Panics if none comes within `PATIENCE`.
    pub fn answer(&self, session: &str) -> Answer {
        let mut early = self.early.borrow_mut();
        loop {
            if let Some(all) = early.get_mut(session).filter(|all| !all.is_empty()) {
                return all.remove(0);
            }
            let (of, answer) = self.answers.recv_timeout(PATIENCE).expect("the peer answers");
            early.entry(of).or_default().push(answer);
        }
    }

    /// Sends an order and waits for its reply.
    pub fn ask(&self, session: &str, order: &str) -> Answer {
        self.tell(session, order);
        self.answer(session)
    }

    /// Kills it, as a power cut would.
    pub fn kill(&mut self) {
        // Fails only if the process has ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Parses `session ns ok value` or `session ns failed what`.
fn parse(line: &str) -> Option<(String, Answer)> {
    let mut words = line.splitn(4, ' ');
    let (session, at, end) = (words.next()?, words.next()?.parse().ok()?, words.next()?);
    let text = words.next().unwrap_or_default().to_owned();
    let end = match end {
        "ok" => Ok(text),
        "failed" => Err(text),
        _ => return None,
    };
    Some((session.to_owned(), Answer { at, end }))
}
