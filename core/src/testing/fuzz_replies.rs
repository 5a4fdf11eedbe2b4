//! Fuzzing of replies: nothing is granted, extended, released, ended or attached unless a server sends the exact bytes
//! of its script's reply. The bytes pass through the parser, `script_reply`, and a client with its quorum, tenures and
//! leases. This file decides independently, from the bytes alone, what they should mean.
//!
//! `corpus/replies.txt` has interesting replies: each is tested unchanged, and the generator mutates them.

use std::{
    collections::HashMap,
    sync::{Arc, LazyLock},
    time::Duration,
};

use proptest::{collection::vec, prelude::*, sample};
use redis::Value;

use super::{
    errors::error_from_reply,
    identify::{always, micros},
    replies::script_reply,
};
use crate::{
    client::Client,
    config::{Config, LockOptions, Ttl},
    error::LockError,
    lease::Lease,
    owner::Owner,
    process::runtime,
    protocol::script::Reply,
    server::{Node, NodeError, NodeErrorKind},
    tenure::ReleaseOutcome,
    testing::scripted::Scripted,
};

/// One reply per line. `\r`, `\n`, `\0`, `\xHH` and `\\` stand for bytes that are not printable; `#` starts a comment.
static CORPUS: LazyLock<Vec<Vec<u8>>> = LazyLock::new(|| {
    let lines = include_str!("corpus/replies.txt").lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    lines.map(unescaped).collect()
});

fn unescaped(line: &str) -> Vec<u8> {
    let (mut bytes, mut rest) = (Vec::new(), line.bytes());
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'\\' => match rest.next() {
                Some(b'r') => b'\r',
                Some(b'n') => b'\n',
                Some(b'0') => 0,
                Some(b'x') => {
                    let hex = [rest.next(), rest.next()].map(|digit| char::from(digit.expect("two digits")));
                    u8::from_str_radix(&hex.iter().collect::<String>(), 16).expect("a hexadecimal number")
                }
                other => other.expect("something escaped"),
            },
            byte => byte,
        });
    }
    bytes
}

/// The result if a server sends these bytes. As in `Inner::eval`, a reply that ends early counts as no reply.
fn received(bytes: &[u8]) -> Result<Reply, NodeError> {
    let silence = || NodeError::new(NodeErrorKind::Unknown, "no answer");
    match redis::parse_redis_value(bytes) {
        Ok(value) => script_reply(value),
        Err(_) => Err(silence()),
    }
}

// ---- the expected meaning, from the bytes alone ---------------------------------------------------------------------

/// The integers of a flat RESP list of integers, and nothing else, at the start of `bytes`.
fn integers(bytes: &[u8]) -> Option<Vec<i64>> {
    let mut lines = Lines(bytes);
    let count: i64 = lines.number(b'*')?;
    (0..count).map(|_| lines.number(b':')).collect()
}

/// The integer that `bytes` start with.
fn integer(bytes: &[u8]) -> Option<i64> {
    Lines(bytes).number(b':')
}

struct Lines<'a>(&'a [u8]);

impl Lines<'_> {
    /// The number in the next line, which must start with `kind`. The parser accepts a sign and surrounding spaces.
    fn number(&mut self, kind: u8) -> Option<i64> {
        let end = self.0.windows(2).position(|two| two == b"\r\n")?;
        let (line, rest) = (&self.0[..end], &self.0[end + 2..]);
        self.0 = rest;
        let digits = line.strip_prefix(&[kind])?;
        std::str::from_utf8(digits).ok()?.trim().parse().ok()
    }
}

/// The RESP string at the start of `bytes`.
fn text(bytes: &[u8]) -> Option<&str> {
    let mut lines = Lines(bytes);
    let length = usize::try_from(lines.number(b'$')?).ok()?;
    let text = std::str::from_utf8(lines.0.get(..length)?).ok()?;
    lines.0[length..].starts_with(b"\r\n").then_some(text)
}

/// A number in its canonical notation only.
fn written(part: &str) -> Option<i64> {
    part.parse::<i64>().ok().filter(|number| number.to_string() == part)
}

/// The numbers in a RESP string of numbers, at the start of `bytes`.
fn spelled_out(bytes: &[u8]) -> Option<Vec<i64>> {
    text(bytes)?.split(' ').map(written).collect()
}

/// The slots and their tokens, if the bytes grant two of four slots.
fn permitted(bytes: &[u8]) -> Option<[[i64; 2]; 2]> {
    let parts: Vec<&str> = text(bytes)?.split(' ').collect();
    let ["1", slots, time] = parts[..] else { return None };
    written(time)?;
    let slot = |text: &str| {
        let (slot, token) = text.split_once(':')?;
        Some([written(slot)?, written(token)?])
    };
    let slots: Vec<[i64; 2]> = slots.split(',').map(slot).collect::<Option<_>>()?;
    let slots: [[i64; 2]; 2] = slots.try_into().ok()?;
    let known = slots.iter().all(|[slot, token]| (0..4).contains(slot) && (1..=1 << 53).contains(token));
    (known && slots[0][0] != slots[1][0]).then_some(slots)
}

/// The token, if the bytes are a grant.
fn granted(bytes: &[u8]) -> Option<u64> {
    match spelled_out(bytes)?[..] {
        [1, token, time] if (1..=1 << 53).contains(&token) && (0..=1 << 53).contains(&time) => Some(token as u64),
        _ => None,
    }
}

// ---- generated bytes ------------------------------------------------------------------------------------------------

fn number() -> impl Strategy<Value = i64> {
    let odd = sample::select(vec![
        i64::MIN,
        i64::MIN + 1,
        -(1 << 53),
        -3,
        -2,
        -1,
        0,
        1,
        2,
        3,
        4,
        5,
        100,
        (1 << 53) - 1,
        1 << 53,
        (1 << 53) + 1,
        i64::MAX / 1000,
        i64::MAX - 1,
        i64::MAX,
    ]);
    prop_oneof![4 => -2_i64..6, 2 => odd, 2 => 1_700_000_000_000_000_i64..1_900_000_000_000_000, 1 => any::<i64>()]
}

/// An integer, sometimes as another type that looks like one.
fn scalar() -> impl Strategy<Value = Vec<u8>> {
    let text = |kind: &'static str| number().prop_map(move |number| format!("{kind}{number}\r\n").into_bytes());
    let bulk = prop_oneof![
        number().prop_map(|number| number.to_string().into_bytes()),
        vec(any::<u8>(), 0..12),
        "[a-f0-9-]{8}:[0-9]{1,3}".prop_map(String::into_bytes),
    ]
    .prop_map(|text| [format!("${}\r\n", text.len()).as_bytes(), &text, b"\r\n"].concat());
    let fixed = sample::select(vec![
        "_\r\n",
        "$-1\r\n",
        "*-1\r\n",
        "*0\r\n",
        "#t\r\n",
        "#f\r\n",
        "+OK\r\n",
        "+1\r\n",
        ",1\r\n",
        ",1.5\r\n",
        ",nan\r\n",
        ",inf\r\n",
        "(1\r\n",
        "=5\r\ntxt:1\r\n",
        "-ERR no\r\n",
        "-NOSCRIPT no\r\n",
        "-WRONGTYPE no\r\n",
        "!5\r\nERR x\r\n",
        "%0\r\n",
        "~0\r\n",
        ">0\r\n",
        ":\r\n",
        ":1",
        "$5\r\n12",
        ":+1\r\n",
        ":01\r\n",
        ": 1 \r\n",
    ]);
    prop_oneof![
        12 => text(":"),
        1 => text("+"),
        1 => text(","),
        1 => text("("),
        2 => bulk,
        2 => fixed.prop_map(|text| text.as_bytes().to_vec()),
    ]
}

/// Lists and RESP's other nested types, mostly of the lengths of real replies.
fn nested() -> impl Strategy<Value = Vec<u8>> {
    scalar().prop_recursive(4, 24, 5, |inner| {
        let kind = prop_oneof![10 => Just('*'), 1 => Just('~'), 1 => Just('>'), 1 => Just('%'), 1 => Just('|')];
        let wrong = prop_oneof![12 => Just(0_i64), 1 => -4_i64..4, 1 => any::<i64>()];
        (kind, vec(inner, 0..6), wrong).prop_map(|(kind, parts, wrong)| {
            let length = i64::try_from(parts.len()).unwrap_or_default().wrapping_add(wrong);
            [format!("{kind}{length}\r\n").as_bytes(), &parts.concat()].concat()
        })
    })
}

/// A reply in the shape of a script's, with numbers of all kinds.
fn shaped() -> impl Strategy<Value = Vec<u8>> {
    let list = prop_oneof![6 => Just(3), 2 => Just(1), 1 => Just(2), 1 => Just(4), 1 => Just(0)]
        .prop_flat_map(|length| vec(number(), length))
        .prop_map(|numbers| {
            let lines = numbers.iter().map(|number| format!(":{number}\r\n")).collect::<Vec<_>>().concat();
            format!("*{}\r\n{lines}", numbers.len()).into_bytes()
        });
    let vote = (-1_i64..6, number(), number()).prop_map(|(code, value, time)| {
        let text = format!("{code} {value} {time}");
        format!("${}\r\n{text}\r\n", text.len()).into_bytes()
    });
    prop_oneof![list, vote]
}

/// Known replies with a few bytes changed, removed or inserted, cut off, or with another reply in the middle.
fn mutated() -> impl Strategy<Value = Vec<u8>> {
    let change = (any::<sample::Index>(), 0..5, any::<u8>());
    (sample::select(CORPUS.clone()), sample::select(CORPUS.clone()), vec(change, 1..4)).prop_map(
        |(mut bytes, other, changes)| {
            for (at, how, byte) in changes {
                if bytes.is_empty() {
                    break;
                }
                let at = at.index(bytes.len());
                match how {
                    0 => bytes[at] = byte,
                    1 => drop(bytes.remove(at)),
                    2 => bytes.insert(at, byte),
                    3 => bytes.truncate(at),
                    _ => drop(bytes.splice(at..at, other.iter().copied())),
                }
            }
            bytes
        },
    )
}

pub(super) fn bytes() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        3 => shaped(),
        3 => nested(),
        3 => mutated(),
        1 => vec(any::<u8>(), 0..64),
        1 => vec(sample::select(b"*:$+-_#,(~>%|=!0123456789\r\n".to_vec()), 0..48),
    ]
}

// ---- checks ---------------------------------------------------------------------------------------------------------

/// A client of nodes that reply with these bytes, by the name of the script.
fn client(nodes: Vec<HashMap<&'static str, Vec<u8>>>) -> Client {
    let nodes: Vec<Arc<dyn Node>> = nodes
        .into_iter()
        .enumerate()
        .map(|(index, replies)| -> Arc<dyn Node> {
            Scripted::new(format!("node{index}"), move |call| match replies.get(call.script.name) {
                Some(bytes) => received(bytes),
                None => Ok(Reply::Int(1)),
            })
        })
        .collect();
    let mut config = Config::new((0..nodes.len()).map(|index| format!("memory://fuzz{index}")));
    // Otherwise a reply could mean that the node lost its keys; these tests are about votes.
    config.quarantine = false;
    Client::with_nodes(config, Arc::new(|_| {}), nodes).expect("a valid configuration")
}

const GRANT: &[u8] = b"$35\r\n1 1795249352564870 1795249352564870\r\n";

fn one(replies: impl IntoIterator<Item = (&'static str, Vec<u8>)>) -> Client {
    client(vec![[("acquire", GRANT.to_vec())].into_iter().chain(replies).collect()])
}

fn acquire(client: &Client) -> Result<Option<Lease>, LockError> {
    let options = LockOptions { ttl: Ttl::Fixed(Duration::from_secs(30)), ..LockOptions::default() };
    let lock = client.lock("x", options).expect("a valid lock");
    runtime::background().block_on(lock.try_acquire())
}

fn leased(client: &Client) -> Lease {
    acquire(client).expect("a quorum that answers").expect("a free lock")
}

/// On one node an acquire succeeds if and only if the bytes are a grant.
fn check_acquire(bytes: &[u8]) {
    let acquired = acquire(&one([("acquire", bytes.to_vec())]));
    let shown = bytes.escape_ascii();
    match granted(bytes) {
        Some(token) => {
            let lease = acquired.unwrap_or_else(|error| panic!("{shown}: {error}")).expect("a lease");
            assert_eq!(lease.token(), token, "{shown}");
            assert!(lease.held(), "{shown}");
        }
        None => assert!(!matches!(acquired, Ok(Some(_))), "{shown} was taken for a grant"),
    }
}

/// If the bytes are a grant, the permit has exactly the slots in them.
fn check_permit(bytes: &[u8]) {
    let semaphore = one([("semaphore/acquire", bytes.to_vec())]).semaphore("x", 4, LockOptions::default());
    let acquired = runtime::background().block_on(semaphore.expect("a valid one").try_acquire_many(2));
    let shown = bytes.escape_ascii();
    match permitted(bytes) {
        Some(slots) => {
            let permit = acquired.unwrap_or_else(|error| panic!("{shown}: {error}")).expect("a permit");
            let has = permit.slots().iter().map(|slot| [i64::from(slot.number), slot.token.cast_signed()]);
            assert!(has.eq(slots), "{shown}: {:?}", permit.slots());
        }
        None => assert!(!matches!(acquired, Ok(Some(_))), "{shown} was taken for a grant"),
    }
    check_permit_on_a_quorum(bytes);
}

/// The same for the replies of three nodes.
fn check_permit_on_a_quorum(bytes: &[u8]) {
    let nodes = vec![HashMap::from([("semaphore/take", bytes.to_vec())]); 3];
    let semaphore = client(nodes).semaphore("x", 4, LockOptions::default()).expect("a valid one");
    let acquired = runtime::background().block_on(semaphore.try_acquire_many(2));
    let shown = bytes.escape_ascii();
    // The time is sent to the nodes again, and must be a possible token.
    let time = text(bytes).and_then(|text| text.rsplit_once(' ')).and_then(|(_, time)| written(time));
    match permitted(bytes).filter(|_| time.is_some_and(|time| (0..=1 << 53).contains(&time))) {
        Some(slots) => {
            let permit = acquired.unwrap_or_else(|error| panic!("{shown}: {error}")).expect("a permit");
            let has = permit.slots().iter().map(|slot| [i64::from(slot.number), slot.token.cast_signed()]);
            assert!(has.eq(slots), "{shown}: {:?}", permit.slots());
        }
        None => assert!(!matches!(acquired, Ok(Some(_))), "{shown} was taken for a grant"),
    }
}

/// All other scripts: each result is positive if and only if the bytes are.
fn check_others(bytes: &[u8]) {
    let shown = bytes.escape_ascii();
    let scripts = [
        "renew",
        "release",
        "end",
        "read_write/end",
        "semaphore/end",
        "inspect",
        "read_write/inspect",
        "semaphore/inspect",
        "attach",
        "learn",
    ];
    let replies = scripts.map(|script| (script, bytes.to_vec()));
    let client = one(replies);
    let runtime = runtime::background();

    let lease = leased(&client);
    let left = lease.remaining();
    let extended = runtime.block_on(lease.extend(Duration::from_secs(50)));
    let exact = integers(bytes) == Some(vec![1]);
    assert_eq!(extended.is_ok(), exact, "{shown}: {extended:?}");
    assert!(exact || lease.remaining() <= left, "{shown} extended a lease");
    assert!(lease.held() || matches!(integers(bytes).as_deref(), Some([-2..=0])), "{shown} ended a lease");
    drop(lease);

    let lease = leased(&client);
    let outcome = runtime.block_on(lease.release()).expect("nothing was detached");
    let expected = match integer(bytes) {
        Some(1) => ReleaseOutcome::Released,
        Some(0) => ReleaseOutcome::Lost,
        _ => ReleaseOutcome::Unconfirmed,
    };
    assert_eq!(outcome, expected, "{shown}");
    assert!(!lease.held(), "{shown}");

    let ended = runtime.block_on(client.force_release("x"));
    match integer(bytes) {
        // `end` replies -2 for a read/write lock, whose own script then replies the same here.
        Some(0 | -2) => assert!(matches!(ended, Ok(false)), "{shown}: {ended:?}"),
        Some(1..) => assert!(matches!(ended, Ok(true)), "{shown}: {ended:?}"),
        Some(-1) => assert!(matches!(ended, Err(LockError::Conflict { .. })), "{shown}: {ended:?}"),
        _ => assert!(ended.is_err(), "{shown}: {ended:?}"),
    }

    let lock = client.lock("x", LockOptions { ttl: Ttl::Adaptive, ..LockOptions::default() }).expect("a valid lock");
    match (runtime.block_on(lock.inspect()), integers(bytes)) {
        // Of the lists of integers, only one shape means that the lock is free.
        (Ok(None), Some(numbers)) => assert!(matches!(numbers[..], [-2, _]), "{shown}"),
        (Ok(None), None) => panic!("{shown} says that the lock is free"),
        (Ok(Some(info)), numbers) => {
            assert!(numbers.is_none(), "{shown}: {info:?}");
            assert!(matches!(redis::parse_redis_value(bytes), Ok(Value::Array(_))), "{shown}: {info:?}");
        }
        (Err(_), _) => {}
    }

    let before = leased(&client);
    let text = before.detach().expect("a lease that is held");
    let attached = runtime.block_on(client.attach(&text, Owner::Fresh));
    match integer(bytes) {
        // Time passes during the attach, so a short rest of a lease may be over.
        Some(left @ 10..=315_360_000_000) => assert!(attached.is_ok() || left < 5000, "{shown}: {attached:?}"),
        Some(0..10) => {}
        _ => assert!(attached.is_err(), "{shown} was taken for an attached lease"),
    }
    if let Ok(lease) = attached {
        let left = Duration::from_millis(integer(bytes).unwrap_or_default() as u64);
        assert!(lease.remaining() <= left, "{shown}");
    }

    // Adaptive: a reply decides the length of the lease, within bounds.
    let adaptive = runtime.block_on(lock.try_acquire()).expect("a quorum that answers").expect("a free lock");
    assert!(adaptive.remaining() <= Duration::from_secs(27), "{shown}");

    // The other functions that read a server's bytes must not panic.
    if let Ok(value) = redis::parse_redis_value(bytes) {
        if let Value::ServerError(error) = &value {
            assert!(error_from_reply(error).detail.chars().count() <= 200, "{shown}");
        }
        let _ = always(&value);
        let _ = micros(value);
    }
}

/// On three nodes an acquire succeeds only if two of them granted it, and two have the token.
fn check_quorum(replies: &[(Vec<u8>, Vec<u8>)]) {
    let nodes =
        replies.iter().map(|(acquire, bump)| HashMap::from([("acquire", acquire.clone()), ("bump", bump.clone())]));
    let acquired = acquire(&client(nodes.collect()));
    let grants: Vec<(u64, bool)> =
        replies.iter().filter_map(|(acquire, bump)| Some((granted(acquire)?, integer(bump) == Some(1)))).collect();
    // Of any two grants the larger token must be on both nodes: granted, or raised by `bump`.
    let agreed = |a: &(u64, bool), b: &(u64, bool)| a.0 == b.0 || if a.0 < b.0 { a.1 } else { b.1 };
    let pairs = || (0..grants.len()).flat_map(|one| (0..one).map(move |other| (one, other)));
    let possible = pairs().any(|(one, other)| agreed(&grants[one], &grants[other]));
    let certain = grants.len() >= 2 && pairs().all(|(one, other)| agreed(&grants[one], &grants[other]));
    match acquired {
        Ok(Some(lease)) => {
            assert!(possible, "held with {grants:?} of {replies:?}");
            assert!(grants.iter().any(|(token, _)| *token == lease.token()), "a token that nobody granted");
        }
        other => assert!(!certain, "{grants:?} did not suffice: {other:?}"),
    }
}

#[test]
fn the_corpus_means_what_it_says() {
    assert!(CORPUS.iter().filter(|bytes| granted(bytes).is_some()).count() >= 3, "the corpus lost its grants");
    assert!(CORPUS.iter().any(|bytes| permitted(bytes).is_some()), "the corpus lost its permit");
    for bytes in &*CORPUS {
        check_acquire(bytes);
        check_permit(bytes);
        check_others(bytes);
    }
}

proptest! {
    #![proptest_config(crate::testing::fuzz::cases(2_000))]

    #[test]
    fn nothing_but_a_grant_is_taken_for_one(bytes in bytes()) {
        check_acquire(&bytes);
        check_permit(&bytes);
    }
}

proptest! {
    #![proptest_config(crate::testing::fuzz::cases(500))]

    #[test]
    fn no_reply_is_taken_for_what_it_is_not(bytes in bytes()) {
        check_others(&bytes);
    }

    #[test]
    fn no_replies_make_a_quorum_but_q_grants(replies in vec((bytes(), bytes()), 3)) {
        check_quorum(&replies);
    }

    #[test]
    fn grants_that_differ_need_their_bumps(
        replies in vec((sample::select(vec![3_i64, 7, 9]), sample::select(vec![":1\r\n", ":0\r\n", ":2\r\n", "+1\r\n", "#t\r\n"])), 3),
    ) {
        let replies: Vec<_> = replies
            .into_iter()
            .map(|(token, bump)| (format!("*3\r\n:1\r\n:{token}\r\n:5\r\n").into_bytes(), bump.as_bytes().to_vec()))
            .collect();
        check_quorum(&replies);
    }
}
