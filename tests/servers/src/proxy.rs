//! A TCP proxy on 127.0.0.1 with faults on demand: it delays, holds back or loses the bytes of one direction, ends
//! connections after a chosen byte, and moves to another server. It stands for the network between one group of clients
//! and one server, since the machines that run the tests may not be able to disturb a real one (no netem, no iptables).
//!
//! No fault alters bytes: they are only late, cut off or lost. As with TCP, nothing is missing in the middle of a
//! connection. So a connection that lost bytes carries no more, and ends when the loss is over. A test that needs
//! another server than the installed one can have replies rewritten (`rewrite`).

use std::{
    io,
    net::TcpListener,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering::SeqCst},
    },
    time::Duration,
};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{
        TcpStream,
        tcp::{OwnedReadHalf, OwnedWriteHalf},
    },
    select,
    sync::watch,
    task::{AbortHandle, JoinSet},
    time::sleep,
};

use crate::{RUNTIME, locked, port::Port};

/// The direction of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// From the client to the server.
    Requests,
    /// From the server to the client.
    Replies,
}

/// Both directions.
pub const DIRECTIONS: [Direction; 2] = [Direction::Requests, Direction::Replies];

/// The treatment of the bytes of one direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Flow {
    /// They pass.
    #[default]
    Pass,
    /// They wait, and pass later: a partition that TCP survives.
    Hold,
    /// They are lost, and their connection with them: a partition that TCP does not survive.
    Lose,
}

/// How a connection ends after the last byte that passes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cut {
    /// In both directions at once.
    Whole,
    /// Only in this direction; the other one continues.
    Half,
}

#[derive(Clone, Default)]
struct Way {
    flow: Flow,
    /// The first connections, of which the bytes wait.
    held: u64,
    delay: Duration,
    /// After how many more bytes a connection ends, and how.
    left: Option<(u64, Cut)>,
    /// The next piece that contains this is lost as a whole.
    swallow: Option<Vec<u8>>,
    rewrite: Option<fn(&mut [u8])>,
}

struct Shared {
    server: Mutex<u16>,
    ways: [watch::Sender<Way>; 2],
    /// Incremented to end all connections.
    cuts: watch::Sender<u64>,
    passed: [AtomicU64; 2],
    lost: [AtomicU64; 2],
    opened: AtomicU64,
    settled: AtomicU64,
}

/// A proxy in front of one server. Dropping it ends all its connections.
pub struct Proxy {
    port: Port,
    shared: Arc<Shared>,
    task: AbortHandle,
}

impl Proxy {
    /// Starts a proxy in front of the server on this port of 127.0.0.1.
    pub fn start(server: u16) -> Self {
        let (port, listener) = Port::listen();
        listener.set_nonblocking(true).expect("a listener for tokio");
        let shared = Arc::new(Shared {
            server: Mutex::new(server),
            ways: [watch::Sender::default(), watch::Sender::default()],
            cuts: watch::Sender::default(),
            passed: <_>::default(),
            lost: <_>::default(),
            opened: AtomicU64::new(0),
            settled: AtomicU64::new(0),
        });
        let task = RUNTIME.spawn(accept(listener, shared.clone())).abort_handle();
        Self { port, shared, task }
    }

    /// The URL for clients.
    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port.number())
    }

    /// The number of bytes that passed in this direction.
    pub fn passed(&self, direction: Direction) -> u64 {
        self.shared.passed[direction as usize].load(SeqCst)
    }

    /// The number of bytes that were lost in this direction.
    pub fn lost(&self, direction: Direction) -> u64 {
        self.shared.lost[direction as usize].load(SeqCst)
    }

    /// The number of accepted connections.
    pub fn opened(&self) -> u64 {
        self.shared.opened.load(SeqCst)
    }

    /// The number of pieces that passed after they were held back, and of connections that ended.
    pub fn settled(&self) -> u64 {
        self.shared.settled.load(SeqCst)
    }

    /// Delays each piece of this direction by `delay`.
    pub fn delay(&self, direction: Direction, delay: Duration) {
        self.way(direction, |way| way.delay = delay);
    }

    /// Sets the treatment of this direction's bytes from now on.
    pub fn flow(&self, direction: Direction, flow: Flow) {
        self.way(direction, |way| way.flow = flow);
    }

    /// Holds back the bytes of this direction on the first `connections`, and on no later one.
    pub fn hold_first(&self, direction: Direction, connections: u64) {
        self.way(direction, |way| way.held = connections);
    }

    /// Passes each piece of this direction through `rewrite`.
    pub fn rewrite(&self, direction: Direction, rewrite: fn(&mut [u8])) {
        self.way(direction, |way| way.rewrite = Some(rewrite));
    }

    /// Ends the connection that carries the `after`-th byte from now on, right after that byte; with zero, before the
    /// next byte. Later connections are not cut.
    pub fn cut_after(&self, direction: Direction, after: u64, cut: Cut) {
        self.way(direction, |way| way.left = Some((after, cut)));
    }

    /// True if the cut has not happened yet.
    pub fn is_armed(&self, direction: Direction) -> bool {
        self.shared.ways[direction as usize].borrow().left.is_some()
    }

    /// Loses the next piece of this direction that contains `part`, and nothing else.
    pub fn swallow(&self, direction: Direction, part: &[u8]) {
        self.way(direction, |way| way.swallow = Some(part.to_vec()));
    }

    /// True if no piece was lost that way yet.
    pub fn is_hungry(&self, direction: Direction) -> bool {
        self.shared.ways[direction as usize].borrow().swallow.is_some()
    }

    /// Ends every connection.
    pub fn cut(&self) {
        self.shared.cuts.send_modify(|count| *count += 1);
    }

    /// Ends every connection. New ones go to another server.
    pub fn move_to(&self, server: u16) {
        self.lead_to(server);
        self.cut();
    }

    /// New connections go to another server. The others stay.
    pub fn lead_to(&self, server: u16) {
        *locked(&self.shared.server) = server;
    }

    /// Removes all faults.
    pub fn heal(&self) {
        for direction in DIRECTIONS {
            self.way(direction, |way| *way = Way::default());
        }
    }

    fn way(&self, direction: Direction, change: impl FnOnce(&mut Way)) {
        self.shared.ways[direction as usize].send_modify(change);
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn accept(listener: TcpListener, shared: Arc<Shared>) {
    let listener = tokio::net::TcpListener::from_std(listener).expect("a listener for tokio");
    // They end with this task.
    let mut connections = JoinSet::new();
    loop {
        select! {
            // It does not fail for lack of file descriptors: tests use few.
            accepted = listener.accept() => if let Ok((client, _)) = accepted {
                let number = shared.opened.fetch_add(1, SeqCst) + 1;
                let mut cuts = shared.cuts.subscribe();
                cuts.mark_unchanged();
                let (connection, shared) = (carry(number, client, shared.clone()), shared.clone());
                connections.spawn(async move {
                    select! {
                        _ = connection => {}
                        _ = cuts.changed() => {}
                    }
                    shared.settled.fetch_add(1, SeqCst);
                });
            },
            Some(_) = connections.join_next() => {}
        }
    }
}

/// Carries one connection until both directions end, or one is cut. Both sockets are closed after it.
async fn carry(number: u64, client: TcpStream, shared: Arc<Shared>) -> io::Result<()> {
    let server = *locked(&shared.server);
    let server = TcpStream::connect(("127.0.0.1", server)).await?;
    client.set_nodelay(true)?;
    server.set_nodelay(true)?;
    let (from_client, to_client) = client.into_split();
    let (from_server, to_server) = server.into_split();
    let requests = pump(number, &shared, Direction::Requests, from_client, to_server);
    let replies = pump(number, &shared, Direction::Replies, from_server, to_client);
    tokio::try_join!(requests, replies).map(drop)
}

/// Carries one direction. An error also ends the other one.
async fn pump(
    number: u64,
    shared: &Shared,
    direction: Direction,
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
) -> io::Result<()> {
    let (sender, passed) = (&shared.ways[direction as usize], &shared.passed[direction as usize]);
    let mut way = sender.subscribe();
    let mut buffer = vec![0; 16 * 1024];
    let mut doomed = false;
    loop {
        let mut length = select! {
            read = from.read(&mut buffer) => read?,
            changed = way.wait_for(|way| way.flow != Flow::Lose), if doomed => {
                drop(changed);
                return Err(io::ErrorKind::ConnectionReset.into());
            }
        };
        if length == 0 {
            return to.shutdown().await;
        }
        let delay = way.borrow().delay;
        if !delay.is_zero() {
            sleep(delay).await;
        }
        let is_held = |way: &Way| way.flow == Flow::Hold || number <= way.held;
        let was_held = is_held(&way.borrow());
        if way.wait_for(|way| !is_held(way)).await.map_err(io::Error::other)?.flow == Flow::Lose || doomed {
            doomed = true;
            shared.lost[direction as usize].fetch_add(length as u64, SeqCst);
            continue;
        }
        let (mut cut, mut swallowed) = (None, false);
        // All connections share the number of bytes that may still pass.
        sender.send_if_modified(|way| {
            if let Some((left, how)) = &mut way.left {
                length = length.min(*left as usize);
                *left -= length as u64;
                cut = (*left == 0).then_some(*how);
            }
            let piece = &mut buffer[..length];
            swallowed = way.swallow.as_ref().is_some_and(|part| contains(piece, part));
            if let Some(rewrite) = way.rewrite {
                rewrite(piece);
            }
            if cut.is_some() {
                way.left = None;
            }
            if swallowed {
                way.swallow = None;
            }
            // No receiver waits for these changes.
            false
        });
        if !swallowed {
            passed.fetch_add(length as u64, SeqCst);
            to.write_all(&buffer[..length]).await?;
        }
        if was_held {
            shared.settled.fetch_add(1, SeqCst);
        }
        match cut {
            None => {}
            Some(Cut::Whole) => return Err(io::ErrorKind::ConnectionReset.into()),
            Some(Cut::Half) => return to.shutdown().await,
        }
    }
}

fn contains(piece: &[u8], part: &[u8]) -> bool {
    piece.windows(part.len()).any(|window| window == part)
}

#[cfg(test)]
mod tests {
    use std::{
        io::{Read, Write},
        net,
        time::Instant,
    };

    use super::*;

    /// An echo server, the proxy in front of it, and a connection.
    fn echo() -> (Proxy, net::TcpStream) {
        let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a port");
        let proxy = Proxy::start(listener.local_addr().expect("an address").port());
        std::thread::spawn(move || {
            while let Ok((mut stream, _)) = listener.accept() {
                std::thread::spawn(move || {
                    let mut reader = stream.try_clone().expect("a second handle");
                    // Fails if the proxy cuts it.
                    let _ = io::copy(&mut reader, &mut stream);
                });
            }
        });
        let stream = connect(&proxy);
        (proxy, stream)
    }

    fn connect(proxy: &Proxy) -> net::TcpStream {
        let stream = net::TcpStream::connect(("127.0.0.1", proxy.port.number())).expect("the proxy listens");
        stream.set_read_timeout(Some(Duration::from_secs(20))).expect("a time-out");
        stream
    }

    /// Sends a text and reads until all of it has come back or the connection ends.
    fn exchange(stream: &mut net::TcpStream, text: &str) -> String {
        // The read below shows if the connection was cut.
        let _ = stream.write_all(text.as_bytes());
        let mut got = vec![0; text.len()];
        let mut length = 0;
        while length < text.len() {
            match stream.read(&mut got[length..]) {
                Ok(0) => break,
                Ok(more) => length += more,
                Err(error) => {
                    assert_ne!(error.kind(), io::ErrorKind::WouldBlock, "neither an answer nor an end");
                    break;
                }
            }
        }
        String::from_utf8_lossy(&got[..length]).into_owned()
    }

    #[test]
    fn it_ends_a_connection_after_any_byte_of_either_direction() {
        for direction in DIRECTIONS {
            for cut in [Cut::Whole, Cut::Half] {
                for after in 0..6 {
                    let (proxy, mut stream) = echo();
                    assert_eq!(exchange(&mut stream, "warm"), "warm");
                    proxy.cut_after(direction, after, cut);
                    let got = exchange(&mut stream, "hello");
                    assert!("hello"[..after.min(5) as usize].starts_with(&got), "{direction:?} {after}: {got}");
                    let whole = direction == Direction::Replies || cut == Cut::Half;
                    assert!(!whole || got.len() as u64 == after.min(5), "{direction:?} {after}: {got}");
                    assert_eq!(proxy.is_armed(direction), after == 6);
                    if after < 6 {
                        assert_eq!(exchange(&mut connect(&proxy), "next"), "next");
                    }
                }
            }
        }
    }

    #[test]
    fn it_holds_loses_delays_and_swallows() {
        for direction in DIRECTIONS {
            let (proxy, mut stream) = echo();
            assert_eq!(exchange(&mut stream, "warm"), "warm");
            proxy.delay(direction, Duration::from_millis(30));
            let start = Instant::now();
            assert_eq!(exchange(&mut stream, "late"), "late");
            assert!(start.elapsed() >= Duration::from_millis(30));
            proxy.delay(direction, Duration::ZERO);

            proxy.swallow(direction, b"ws");
            stream.write_all(b"news").expect("a connection");
            while proxy.is_hungry(direction) {
                std::thread::yield_now();
            }
            assert_eq!(exchange(&mut stream, "more"), "more");

            let passed = proxy.passed(direction);
            proxy.flow(direction, Flow::Hold);
            stream.write_all(b"held").expect("a connection");
            proxy.flow(direction, Flow::Pass);
            assert_eq!(exchange(&mut stream, ""), "");
            let mut held = [0; 4];
            stream.read_exact(&mut held).expect("what was held back");
            assert_eq!(&held, b"held");
            assert_eq!(proxy.passed(direction), passed + 4);

            proxy.flow(direction, Flow::Lose);
            stream.write_all(b"lost").expect("a connection");
            assert_eq!(exchange(&mut connect(&proxy), ""), "");
            while proxy.lost(direction) < 4 {
                std::thread::yield_now();
            }
            proxy.flow(direction, Flow::Pass);
            assert_eq!(exchange(&mut stream, "dead"), "");
            assert_eq!(exchange(&mut connect(&proxy), "alive"), "alive");
            proxy.cut();
        }
    }
}
