//! Another lock library in a process of its own that takes orders, a line each; `tests/interop/README.md` defines them.
//! A session is whoever holds a lock there: orders of one are followed one after the other, those of several at once
//! where the library has threads.

use std::{
    cell::RefCell,
    collections::HashMap,
    io::{BufRead, BufReader, Write},
    process::{Child, ChildStdin, Stdio},
    sync::mpsc::{Receiver, channel},
    thread::spawn,
};

use crate::contender::{PATIENCE, shell};

/// The process; killed when it is dropped, as a crash would.
#[derive(Debug)]
pub struct Peer {
    child: Child,
    orders: RefCell<ChildStdin>,
    answers: Receiver<(String, Answer)>,
    /// Of other sessions than was asked for.
    early: RefCell<HashMap<String, Vec<Answer>>>,
}

/// What an order came to.
#[derive(Clone, Debug)]
pub struct Answer {
    /// When, in ns of `CLOCK_MONOTONIC`.
    pub at: u64,
    /// The value, or what the library said.
    pub end: Result<String, String>,
}

impl Answer {
    /// The value; panics on a failure.
    pub fn value(self) -> String {
        self.end.expect("an order that succeeds")
    }
}

impl Peer {
    /// Starts it. `words` follow those of the command.
    pub fn start(name: &str, command: &str, words: &[&str]) -> Self {
        let mut child = shell(name, &format!("{command} serve"));
        let mut child = child.args(words).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("a shell");
        let (orders, lines) = (child.stdin.take().expect("piped"), child.stdout.take().expect("piped"));
        let (sender, answers) = channel();
        spawn(move || {
            for line in BufReader::new(lines).lines().map_while(Result::ok) {
                // Others may write to the same place.
                if let Some(answer) = parse(&line)
                    && sender.send(answer).is_err()
                {
                    break;
                }
            }
        });
        Self { child, orders: RefCell::new(orders), answers, early: RefCell::default() }
    }

    /// Gives an order; its answer is to be asked for.
    pub fn tell(&self, session: &str, order: &str) {
        let line = format!("{session} {order}\n");
        self.orders.borrow_mut().write_all(line.as_bytes()).expect("the peer lives");
    }

    /// The next answer of a session; panics when there is none for long.
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

    /// Gives an order and waits for its answer.
    pub fn ask(&self, session: &str, order: &str) -> Answer {
        self.tell(session, order);
        self.answer(session)
    }

    /// Kills it as a power cut does.
    pub fn kill(&mut self) {
        // Fails only when it has ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        self.kill();
    }
}

/// `session ns ok value`, or `session ns failed what`.
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
