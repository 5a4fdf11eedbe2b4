//! A server that replies with arbitrary bytes over a real connection, to an acquire or to everything that a client
//! sends before it. The call must end without a panic, and the lock may be held only if the bytes are a grant.
//! `core/src/testing/fuzz_replies.rs` fuzzes the meaning of replies more widely, without connections.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    time::Duration,
};

use futures_util::{StreamExt, stream::FuturesUnordered};
use proptest::{collection::vec, prelude::*, sample, test_runner::FileFailurePersistence};
use redlock::{Client, Config, LockError, LockOptions};
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader},
    net::{TcpListener, TcpStream},
    runtime::Runtime,
    time::timeout,
};

/// The behaviour of one server of a batch.
#[derive(Clone, Debug)]
enum Part {
    /// Behaves like Redis until the acquire, and replies to that with these bytes.
    Acquire(Vec<u8>),
    /// Replies to every command with these bytes.
    Everything(Vec<u8>),
}

impl Part {
    /// The reply to an acquire.
    fn bytes(&self) -> &[u8] {
        match self {
            Self::Acquire(bytes) | Self::Everything(bytes) => bytes,
        }
    }
}

/// How many servers run at once, each with a client of its own.
const BATCH: usize = 48;
/// No call takes this long, even on a slow machine: its own limit is 600 ms.
const HANGS: Duration = Duration::from_secs(60);

/// Reads one command in the form that every client sends. `None` at the end of the connection.
async fn command(stream: &mut BufReader<TcpStream>) -> Option<Vec<String>> {
    async fn length(stream: &mut BufReader<TcpStream>) -> Option<usize> {
        let mut line = String::new();
        stream.read_line(&mut line).await.ok()?;
        line.get(1..)?.trim().parse().ok()
    }
    let mut words = Vec::new();
    for _ in 0..length(stream).await? {
        let mut word = vec![0; length(stream).await? + 2];
        stream.read_exact(&mut word).await.ok()?;
        word.truncate(word.len() - 2);
        words.push(String::from_utf8_lossy(&word).into_owned());
    }
    Some(words)
}

/// Serves each connection until it ends.
async fn serve(listener: TcpListener, part: Part, asked: Arc<AtomicUsize>) {
    let part = Arc::new(part);
    while let Ok((stream, _)) = listener.accept().await {
        let (part, asked) = (part.clone(), asked.clone());
        tokio::spawn(async move {
            let mut stream = BufReader::new(stream);
            while let Some(words) = command(&mut stream).await {
                // Only scripts name the lock, and the first of them is the acquire.
                let script = words[0] == "EVALSHA" || words[0] == "EVAL";
                let reply: Vec<u8> = match &*part {
                    Part::Everything(bytes) => bytes.clone(),
                    Part::Acquire(bytes) if script && words[3] == "fuzzed" && words[2] == "2" => {
                        asked.fetch_add(1, SeqCst);
                        bytes.clone()
                    }
                    Part::Acquire(_) if script => b":1\r\n".to_vec(),
                    Part::Acquire(_) => match words[0].as_str() {
                        "HELLO" => b"%1\r\n$5\r\nproto\r\n:3\r\n".to_vec(),
                        "INFO" => b"$13\r\nrun_id:1234\r\n\r\n".to_vec(),
                        "TIME" => b"*2\r\n$10\r\n1795249352\r\n$1\r\n0\r\n".to_vec(),
                        "PING" => b"+PONG\r\n".to_vec(),
                        "CONFIG" => b"*2\r\n$11\r\nappendfsync\r\n$8\r\neverysec\r\n".to_vec(),
                        "CLIENT" if words[1] == "INFO" => b"$21\r\nid=1 addr=127.0.0.1:1\r\n".to_vec(),
                        _ => b"+OK\r\n".to_vec(),
                    },
                };
                if stream.get_mut().write_all(&reply).await.is_err() {
                    return;
                }
            }
        });
    }
}

/// The token, if these bytes begin with a grant.
fn granted(bytes: &[u8]) -> Option<u64> {
    let line = bytes.strip_prefix(b"$")?;
    let end = line.windows(2).position(|two| two == b"\r\n")?;
    let length: i64 = std::str::from_utf8(&line[..end]).ok()?.trim().parse().ok()?;
    let rest = &line[end + 2..];
    let (text, rest) = rest.split_at_checked(usize::try_from(length).ok()?)?;
    let number = |part: &str| part.parse::<i64>().ok().filter(|number| number.to_string() == part);
    let numbers: Vec<i64> = std::str::from_utf8(text).ok()?.split(' ').map(number).collect::<Option<_>>()?;
    let limit = 1 << 53;
    match numbers[..] {
        [1, token, time]
            if rest.starts_with(b"\r\n") && (1..=limit).contains(&token) && (0..=limit).contains(&time) =>
        {
            Some(token as u64)
        }
        _ => None,
    }
}

/// Acquires the lock from each server of a batch, all at once.
fn check(runtime: &Runtime, parts: &[Part]) {
    runtime.block_on(async {
        let asked = Arc::new(AtomicUsize::new(0));
        let mut servers = Vec::new();
        let mut calls = FuturesUnordered::new();
        for part in parts {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let url = format!("redis://{}", listener.local_addr().unwrap());
            servers.push(tokio::spawn(serve(listener, part.clone(), asked.clone())));
            let mut config = Config::new([url]);
            config.connect_timeout = Duration::from_millis(500);
            config.reply_timeout = Duration::from_millis(300);
            config.patience = Duration::from_millis(200);
            calls.push(async move {
                let client = Client::new(config).unwrap();
                let mut options = LockOptions::default();
                options.wait = Some(Duration::from_millis(600));
                let lock = client.lock("fuzzed", options).unwrap();
                let acquired = timeout(HANGS, lock.acquire()).await;
                let result = acquired.unwrap_or_else(|_| panic!("an acquire hangs on {part:?}"));
                match (result, granted(part.bytes())) {
                    (Ok(lease), Some(token)) => {
                        assert_eq!(lease.token(), token, "{part:?}");
                        timeout(HANGS, lease.release()).await.unwrap_or_else(|_| panic!("a release hangs")).unwrap();
                    }
                    (Ok(lease), None) => panic!("{lease:?} on {part:?}"),
                    // A grant may arrive too late on a slow machine, or after a handshake that was refused.
                    (
                        Err(LockError::Timeout { .. } | LockError::Unavailable { .. } | LockError::Conflict { .. }),
                        _,
                    ) => {}
                    (Err(error), _) => panic!("{error:?} on {part:?}"),
                }
                timeout(HANGS, client.close()).await.unwrap_or_else(|_| panic!("close hangs on {part:?}"));
            });
        }
        while calls.next().await.is_some() {}
        for server in servers {
            server.abort();
        }
        let acquires = parts.iter().filter(|part| matches!(part, Part::Acquire(_))).count();
        assert!(acquires == 0 || asked.load(SeqCst) > 0, "no server was asked for the lock");
    });
}

fn bytes() -> impl Strategy<Value = Vec<u8>> {
    let number = prop_oneof![
        4 => -2_i64..6,
        1 => any::<i64>(),
        1 => sample::select(vec![i64::MIN, i64::MAX, 1 << 53, (1 << 53) + 1, 1_795_249_352_564_870]),
    ];
    let line = (
        sample::select(vec![":", ":", ":", ":", "+", "-", "$", "*", "~", ">", "%", "|", ",", "(", "#", "_"]),
        number.clone(),
    )
        .prop_map(|(kind, number)| format!("{kind}{number}\r\n").into_bytes());
    let list = (sample::select(vec![3, 3, 3, 1, 2, 4, -1, 1_i64 << 40]), vec(line.clone(), 0..5))
        .prop_map(|(length, lines)| [format!("*{length}\r\n").into_bytes(), lines.concat()].concat());
    let grant = (number.clone(), number).prop_map(|(token, time)| {
        let text = format!("1 {token} {time}");
        format!("${}\r\n{text}\r\n", text.len()).into_bytes()
    });
    let cut = (grant.clone(), any::<sample::Index>(), any::<Option<u8>>()).prop_map(|(mut bytes, at, byte)| {
        let at = at.index(bytes.len());
        match byte {
            Some(byte) => bytes[at] = byte,
            None => bytes.truncate(at),
        }
        bytes
    });
    prop_oneof![
        2 => line,
        4 => list,
        2 => grant,
        3 => cut,
        1 => vec(any::<u8>(), 0..64),
        // Deep, long and endless replies.
        1 => (1_usize..5_000).prop_map(|depth| b"*1\r\n".repeat(depth)),
        1 => (0_usize..200_000).prop_map(|length| b"x".repeat(length)),
    ]
}

fn part() -> impl Strategy<Value = Part> {
    prop_oneof![3 => bytes().prop_map(Part::Acquire), 1 => bytes().prop_map(Part::Everything)]
}

/// Configures a property with this number of cases, or with `PROPTEST_CASES`.
fn cases(cases: u32) -> ProptestConfig {
    let seeds = FileFailurePersistence::WithSource("proptest-regressions");
    let config = ProptestConfig {
        max_shrink_iters: 64,
        failure_persistence: Some(Box::new(seeds)),
        ..ProptestConfig::default()
    };
    if std::env::var_os("PROPTEST_CASES").is_some() { config } else { ProptestConfig { cases, ..config } }
}

proptest! {
    #![proptest_config(cases(5))]

    #[test]
    fn only_a_reply_that_is_a_grant_grants_the_lock(parts in vec(part(), BATCH)) {
        let runtime = Runtime::new().unwrap();
        // Adds a reply that is a grant, to show that the others are refused for what they are.
        let known = Part::Acquire(b"$5\r\n1 7 5\r\n".to_vec());
        check(&runtime, &[vec![known], parts].concat());
    }
}

#[test]
fn a_grant_is_a_lease_and_its_neighbours_are_none() {
    let runtime = Runtime::new().unwrap();
    let grant = b"$5\r\n1 7 5\r\n";
    let mut replies = vec![grant.to_vec()];
    // Changes each byte to each byte that has a meaning in the protocol.
    for at in 0..grant.len() {
        for byte in b"0129-:*$+~>%|,(#_!=\r\n" {
            let mut changed = grant.to_vec();
            changed[at] = *byte;
            replies.push(changed);
        }
        replies.push(grant[..at].to_vec());
    }
    for chunk in replies.chunks(BATCH) {
        let parts: Vec<Part> = chunk.iter().cloned().map(Part::Acquire).collect();
        check(&runtime, &parts);
    }
}
