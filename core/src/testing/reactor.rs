//! Tests of the reactor: signals, closed connections, and calls of many threads.

use std::{
    future::poll_fn,
    io::Write,
    net::{TcpListener, TcpStream},
    sync::mpsc,
    thread,
    time::Duration,
};

use rustix::event::{PollFd, PollFlags, poll};
use tokio::{
    io::{AsyncRead, ReadBuf},
    sync::oneshot,
    task::yield_now,
};

use super::*;
use crate::{
    ffi::completions::{CompletionQueue, Started},
    testing::plain::Plain,
};

fn is_readable(reactor: &Reactor, limit: Duration) -> bool {
    let limit = Timespec::try_from(limit).unwrap();
    poll(&mut [PollFd::new(&reactor.fd(), PollFlags::IN)], Some(&limit)).unwrap() > 0
}

/// Starting a call does not consume the signal for another call's result.
#[test]
fn results_are_not_hidden_by_calls_that_start() {
    for ends_at_once in [true, false] {
        let reactor = Reactor::of_thread().unwrap();
        let queue = CompletionQueue::with_reactor(reactor.clone());
        let id = queue.start_unstoppable(async { Plain(()) });
        assert!(is_readable(&reactor, Duration::from_secs(30)));
        let _ = queue.start_in_reactor(&reactor, async move {
            host_io::current().unwrap().poll_sockets();
            if !ends_at_once {
                std::future::pending::<()>().await;
            }
            Plain(())
        });
        assert!(is_readable(&reactor, Duration::ZERO), "the thread sleeps, ends at once: {ends_at_once}");
        assert_eq!(queue.drain(), [(id, ())]);
    }
}

/// The peer replies and closes, in one event: the end is read after the reply, without a further event.
#[test]
fn an_end_behind_an_answer_is_seen() {
    let reactor = Reactor::of_thread().unwrap();
    let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let ours = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (mut theirs, _) = listener.accept().unwrap();
    theirs.write_all(b"+OK\r\n").unwrap();
    drop(theirs);
    // The reply and the end have arrived before the reactor watches the socket.
    let mut all = [0; 64];
    while ours.peek(&mut all).unwrap() < 5 {}
    let mut socket = reactor.clone().adopt(ours.into()).unwrap();
    let queue = CompletionQueue::with_reactor(reactor.clone());
    let Started::Pending(id) = queue.start_in_reactor(&reactor, async move {
        let mut read = [Vec::new(), Vec::new()];
        for read in &mut read {
            let mut bytes = [0; 64];
            let mut into = ReadBuf::new(&mut bytes);
            poll_fn(|context| Pin::new(&mut socket).poll_read(context, &mut into)).await.unwrap();
            read.extend_from_slice(into.filled());
        }
        Plain(read)
    }) else {
        panic!("nobody has looked for the answer yet")
    };
    let mut ended = Vec::new();
    while ended.is_empty() {
        assert!(is_readable(&reactor, Duration::from_secs(30)), "the end is forgotten");
        ended = queue.drain();
    }
    assert_eq!(ended, [(id, [b"+OK\r\n".to_vec(), Vec::new()])]);
}

/// An event loop that sends does not read at the same time. It handles all input in its next turn, and the descriptor
/// becomes readable for it.
#[test]
fn what_came_in_waits_for_the_turn() {
    let reactor = Reactor::of_event_loop().unwrap();
    let queue = CompletionQueue::with_reactor(reactor.clone());
    let (ours, theirs) = std::os::unix::net::UnixStream::pair().unwrap();
    let mut socket = reactor.clone().adopt(ours.into()).unwrap();
    let (read, seen) = mpsc::channel();
    let Started::Pending(id) = queue.start_in_reactor(&reactor, async move {
        let mut byte = [0];
        poll_fn(|context| Pin::new(&mut socket).poll_read(context, &mut ReadBuf::new(&mut byte))).await.unwrap();
        read.send(()).unwrap();
        Plain(())
    }) else {
        panic!("nothing is there to be read yet")
    };
    assert_eq!(queue.drain(), []);
    (&theirs).write_all(b"+").unwrap();
    queue.run_reactor();
    assert!(seen.try_recv().is_err(), "it was read where it was sent");
    assert!(is_readable(&reactor, Duration::from_secs(30)), "nobody tells of it");
    assert_eq!(queue.drain(), [(id, ())]);
}

/// Threads start calls that another thread ends, early or late. A lost wake-up shows as a call that does not end, since
/// the draining thread acts only on a readable descriptor.
#[test]
fn no_call_of_many_threads_is_forgotten() {
    let reactor = Reactor::of_thread().unwrap();
    let queue = CompletionQueue::with_reactor(reactor.clone());
    let (ask, asked) = mpsc::channel::<oneshot::Sender<()>>();
    thread::spawn(move || asked.iter().for_each(|answer| answer.send(()).unwrap_or_default()));
    let callers: Vec<_> = (0..4)
        .map(|caller| {
            let (reactor, queue, ask) = (reactor.clone(), queue.clone(), ask.clone());
            thread::spawn(move || {
                for call in 0..10_000 {
                    let (answer, answered) = oneshot::channel();
                    let (end, ended) = mpsc::channel();
                    let ask = ask.clone();
                    let _ = queue.start_in_reactor(&reactor, async move {
                        // As a call does on a connection that was idle.
                        if call % 5 == caller {
                            host_io::current().unwrap().poll_sockets();
                        }
                        // Some calls end at once, and some are woken during one run of the reactor, or during several.
                        if call % 7 != caller {
                            ask.send(answer).unwrap();
                            for _ in 0..(call + caller) % (2 * FEW_ROUNDS) {
                                yield_now().await;
                            }
                            answered.await.unwrap();
                        }
                        end.send(()).unwrap();
                        Plain(())
                    });
                    ended.recv_timeout(Duration::from_secs(30)).expect("a call is forgotten");
                }
            })
        })
        .collect();
    while callers.iter().any(|caller| !caller.is_finished()) {
        if is_readable(&reactor, Duration::from_millis(100)) {
            queue.drain();
        }
    }
    for caller in callers {
        caller.join().unwrap();
    }
}
