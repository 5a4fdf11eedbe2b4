//! Fuzzing of a caller's input: names, owners, times, URLs, options and the text of a detached lease. Each is either
//! refused as `invalid`, with the argument's name and without a secret, or satisfies the invariants that the crate
//! relies on. Nothing panics. `fuzz_replies.rs` fuzzes the input from servers.

use std::{sync::Arc, time::Duration};

use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use proptest::{collection::vec, option, prelude::*, sample};

use crate::{
    client::Client,
    config::{Config, LockOptions, NEVER, TokenKey, Ttl, Wire},
    detached::Detached,
    error::LockError,
    ffi::{Idiom, Setting},
    protocol::names::Names,
    url::{Endpoint, Transport},
};

/// The number of cases for a property; the environment variable `PROPTEST_CASES` overrides it.
pub(crate) fn cases(cases: u32) -> ProptestConfig {
    let config = ProptestConfig::default();
    if std::env::var_os("PROPTEST_CASES").is_some() { config } else { ProptestConfig { cases, ..config } }
}

/// Occurs in every secret here, and in no other text of a test.
const SECRET: &str = "s3cr3t";
const TEN_YEARS: Duration = Duration::from_secs(10 * 365 * 86_400);

fn invalid(error: &LockError) -> &'static str {
    assert!(!error.to_string().contains(SECRET) && !format!("{error:?}").contains(SECRET), "{error} tells a secret");
    match error {
        LockError::Invalid { argument, .. } => argument,
        other => panic!("{other:?} is not `invalid`"),
    }
}

fn text() -> impl Strategy<Value = String> {
    let odd = sample::select(vec![
        "",
        "\0",
        "a\0b",
        "\r\n",
        "a\r\nDEL b",
        "{",
        "}",
        "{}",
        "}{",
        "{a}",
        "a{b}c",
        "{a}{b}",
        "{{a}}",
        "*",
        " ",
        "ß",
        "𝔘",
        "\u{feff}",
        "=x:1",
        ":",
        "redlock_node",
    ]);
    let long = (0_usize..3, 0_usize..70_000).prop_map(|(wide, length)| ["a", "ß", "𝔘"][wide].repeat(length));
    prop_oneof![3 => odd.prop_map(str::to_owned), 3 => any::<String>(), 1 => long, 1 => (1000_usize..1050).prop_map(|n| "k".repeat(n))]
}

fn time() -> impl Strategy<Value = Duration> {
    let odd = sample::select(vec![
        Duration::ZERO,
        Duration::from_nanos(1),
        Duration::from_millis(1),
        Duration::from_millis(49),
        Duration::from_millis(50),
        Duration::from_millis(299),
        Duration::from_millis(300),
        Duration::from_secs(60),
        Duration::from_secs(61),
        TEN_YEARS,
        TEN_YEARS + Duration::from_nanos(1),
        Duration::from_millis(i64::MAX as u64),
        Duration::from_secs(u64::MAX),
        Duration::MAX,
    ]);
    let any_time = (any::<u64>(), 0_u32..1_000_000_000).prop_map(|(seconds, nanos)| Duration::new(seconds, nanos));
    prop_oneof![2 => odd, 1 => any_time, 3 => (0_u64..100_000).prop_map(Duration::from_millis)]
}

fn number() -> impl Strategy<Value = f64> {
    let odd = sample::select(vec![
        f64::NAN,
        f64::INFINITY,
        f64::NEG_INFINITY,
        -0.0,
        0.0,
        -1.0,
        1.0,
        1.5,
        f64::MIN_POSITIVE,
        f64::MAX,
        i64::MAX as f64,
        u64::MAX as f64,
        0.01,
        0.5,
        1e6,
        315_360_000.0,
        315_360_001.0,
    ]);
    prop_oneof![odd, any::<f64>(), 0.0..100_000.0]
}

fn setting() -> impl Strategy<Value = Setting> {
    prop_oneof![
        text().prop_map(Setting::Text),
        sample::select(vec!["adaptive", "token", "redisson", "redlock"])
            .prop_map(|word| Setting::Text(word.to_owned())),
        number().prop_map(Setting::Number),
        any::<bool>().prop_map(Setting::Flag),
        Just(Setting::Other("[1, 2]".to_owned())),
    ]
}

fn url() -> impl Strategy<Value = String> {
    let scheme = sample::select(vec![
        "redis",
        "rediss",
        "valkey",
        "valkeys",
        "unix",
        "redis+unix",
        "memory",
        "http",
        "REDIS",
        "",
        "redis:",
        "1",
    ]);
    let between = prop_oneof![8 => Just("://"), 1 => Just(":"), 1 => Just(":/"), 1 => Just("")];
    let user = option::of(sample::select(vec!["", "me", "m%65", "m%zz", "m%ff"]));
    // Plain, percent-encoded, badly encoded, and with characters that should have been encoded.
    let secret = option::of(sample::select(vec![
        "s3cr3t",
        "s3cr3t%21",
        "s3cr3t%zz",
        "s3cr3t/x",
        "s3cr3t?x",
        "s3cr3t#x",
        "x/s3cr3t",
        "1/s3cr3t",
        "x?s3cr3t",
        "@s3cr3t",
    ]));
    let host = prop_oneof![
        4 => Just("127.0.0.1".to_owned()),
        2 => sample::select(vec!["localhost", "[::1]", "[::1", "", "a b", "%", "%00", "münchen", "a,b"]).prop_map(str::to_owned),
        1 => any::<String>(),
    ];
    let port = prop_oneof![3 => Just(String::new()), 2 => Just(":6379".to_owned()), 1 => any::<u32>().prop_map(|port| format!(":{port}"))];
    let path = sample::select(vec![
        "",
        "/",
        "/0",
        "/15",
        "/-1",
        "/99999999999999999999",
        "/x",
        "/tmp/redis.sock",
        "/%00",
        "/0?db=1",
        "/tmp/s?db=x",
        "?db=-1",
    ]);
    let made = (scheme, between, user, secret, host, port, path).prop_map(
        |(scheme, between, user, secret, host, port, path)| {
            let secret = secret.map(|secret| format!(":{secret}")).unwrap_or_default();
            let at = if user.is_some() || !secret.is_empty() { "@" } else { "" };
            format!("{scheme}{between}{}{secret}{at}{host}{port}{path}", user.unwrap_or_default())
        },
    );
    prop_oneof![8 => made, 1 => any::<String>(), 1 => text()]
}

fn config() -> impl Strategy<Value = Config> {
    // Most of these are longer than a lease.
    let token_ttl = option::of(prop_oneof![2 => time(), 1 => (0_u64..100_000).prop_map(Duration::from_secs)]);
    let nodes = prop_oneof![
        3 => vec(url(), 0..4),
        3 => (1_usize..6).prop_map(|count| (0..count).map(|index| format!("redis://:s3cr3t@127.0.0.{index}")).collect()),
    ];
    let times = (time(), time(), time(), time(), time());
    let plain = prop::bool::weighted(0.5);
    (nodes, option::of(0_usize..8), times, text(), number(), any::<(bool, bool, bool)>(), plain, token_ttl).prop_map(
        |(nodes, quorum, times, prefix, drift, (token, shared, cert), plain, token_ttl)| {
            let mut config = Config::new(nodes);
            config.password = Some(SECRET.to_owned());
            if plain {
                return config;
            }
            config.quorum = quorum;
            (config.watchdog, config.max_ttl, config.patience) = (times.0, times.1, times.2);
            (config.connect_timeout, config.reply_timeout) = (times.3, times.4);
            config.token_ttl = token_ttl;
            config.prefix = prefix;
            config.drift = drift;
            config.wire = if token { Wire::Token } else { Wire::Redisson };
            config.token_key = if shared { TokenKey::Redisson } else { TokenKey::Redlock };
            config.tls.cert = cert.then(|| SECRET.to_owned());
            config
        },
    )
}

fn client(prefix: &str) -> Client {
    let mut config = Config::new(["memory://fuzz-input"]);
    config.prefix = prefix.to_owned();
    Client::with_events(config, Arc::new(|_| {})).expect("a valid configuration")
}

proptest! {
    #![proptest_config(cases(1_500))]

    #[test]
    fn a_configuration_is_refused_or_sane(config in config()) {
        assert!(!format!("{config:?}").contains(SECRET), "{config:?} tells a secret");
        let count = config.urls.len();
        match config.validate() {
            Err(error) => {
                let known = ["urls", "quorum", "watchdog", "drift", "token_ttl", "max_ttl", "patience", "connect_timeout", "reply_timeout", "cert"];
                assert!(known.contains(&invalid(&error)), "{error}");
            }
            Ok(settings) => {
                // With one slash instead of two, the apparent password is a part of the socket's path.
                let path = |endpoint: &Endpoint| matches!(&endpoint.transport, Transport::Unix { path } if path.contains(SECRET));
                let told = format!("{settings:?}").contains(SECRET);
                assert!(!told || settings.endpoints.iter().any(path), "{settings:?} tells a secret");
                assert!(settings.endpoints.len() == count && count > 0);
                assert!(settings.quorum > count / 2 && settings.quorum <= count);
                let config = &settings.config;
                assert!((0.01..0.5).contains(&config.drift));
                assert!((Duration::from_millis(300)..=TEN_YEARS).contains(&config.watchdog));
                assert!(count == 1 || config.watchdog <= config.max_ttl);
                // A lease ends before its key expires on the server, and lasts longer than zero.
                for ttl in [config.watchdog, Duration::from_millis(50), TEN_YEARS] {
                    let validity = settings.validity(ttl);
                    assert!(validity < ttl && !validity.is_zero(), "{validity:?} of {ttl:?}");
                }
                assert!(settings.quarantine() >= config.max_ttl);
                assert!(settings.token_ttl().is_none_or(|ttl| ttl >= Duration::from_secs(60)));
                assert!(settings.token_ttl().is_none_or(|ttl| count == 1 || ttl >= settings.quarantine()));
                // No lease with an end outlives its counter, even if the counter is prolonged only at half of its ttl.
                for ttl in [config.watchdog, config.max_ttl, TEN_YEARS, NEVER / 2] {
                    assert!(settings.counter_ttl(ttl).is_none_or(|kept| kept >= ttl));
                    assert!(settings.prolonged_counter_ttl(ttl).is_none_or(|kept| kept / 2 >= ttl));
                }
                for kept in [settings.counter_ttl(NEVER), settings.prolonged_counter_ttl(NEVER)] {
                    assert_eq!(kept, settings.token_ttl());
                }
                for endpoint in &settings.endpoints {
                    assert!(endpoint.db >= 0);
                }
            }
        }
    }

    #[test]
    fn a_list_of_urls_is_refused_or_sane(urls in vec(url(), 0..4)) {
        let list = urls.join(",");
        let config = Config::from_list(&list);
        assert!(config.urls.iter().all(|url| !url.is_empty() && url.trim() == url));
        if let Err(error) = config.validate() {
            assert_eq!(invalid(&error), "urls");
        }
    }

    #[test]
    fn a_lock_is_refused_or_sane(
        prefix in prop_oneof![Just(String::new()), text()],
        name in text(),
        (ttl, wait, max_hold, min_hold) in
            (option::of(time()), option::of(time()), option::of(time()), option::of(time())),
        owner in option::of(text()),
    ) {
        let client = client(&prefix);
        let ttl = ttl.map_or(Ttl::Watchdog, Ttl::Fixed);
        let options =
            LockOptions { ttl, wait, owner: owner.clone(), max_hold, min_hold, reentrant: true, ..LockOptions::default() };
        let key = format!("{prefix}{name}");
        match client.lock(&name, options) {
            Err(error) => {
                let arguments = ["name", "ttl", "wait", "owner", "max_hold", "min_hold"];
                assert!(arguments.contains(&invalid(&error)), "{error}");
            }
            Ok(lock) => {
                assert!(min_hold.is_none_or(|min_hold| {
                    let bound = if let Ttl::Fixed(ttl) = ttl { ttl } else { max_hold.unwrap_or(TEN_YEARS) };
                    (Duration::from_millis(50)..=bound).contains(&min_hold) && owner.is_none()
                }));
                assert!(!name.is_empty() && key.len() <= 1024 && !key.contains('\0'));
                assert!(owner.is_none_or(|owner| (1..=256).contains(&owner.len())));
                assert!(wait.is_none_or(|wait| wait <= TEN_YEARS));
                if let Ttl::Fixed(ttl) = ttl {
                    assert!((Duration::from_millis(50)..=TEN_YEARS).contains(&ttl) && max_hold.is_none());
                }
                assert_eq!(lock.name(), name);
            }
        }
    }

    /// Derives the keys as docs/protocol.md says.
    #[test]
    fn the_keys_of_a_lock_are_derived_as_documented(prefix in text(), name in text()) {
        let mut config = Config::new(["memory://"]);
        config.prefix.clone_from(&prefix);
        let settings = config.validate().expect("a valid configuration");
        if let Ok(key) = settings.check_lock(&name, &LockOptions::default()) {
            assert_eq!(key, format!("{prefix}{name}"));
            let keys = Names::new(key.clone(), &settings);
            let channel = if key.contains('{') {
                format!("redisson_lock__channel:{key}")
            } else {
                format!("redisson_lock__channel:{{{key}}}")
            };
            assert_eq!(keys.channel(), channel);
            assert_eq!((keys.name(), keys.lock.as_str()), (name.as_str(), key.as_str()));
        }
    }

    #[test]
    fn options_of_a_host_are_refused_or_taken(
        millis in any::<bool>(),
        name in prop_oneof![
            4 => sample::select(vec![
                "quorum", "watchdog", "prefix", "wire", "drift", "token_key", "tokenKey", "token_ttl", "tokenTtl", "max_ttl", "maxTtl",
                "min_replicas", "minReplicas", "patience", "connectTimeout", "strict", "quarantine", "identify", "app", "username", "password", "ca", "cert", "key", "ttl", "wait", "owner",
                "max_hold", "maxHold", "min_hold", "minHold", "reentrant",
            ]).prop_map(str::to_owned),
            1 => text(),
        ],
        value in setting(),
    ) {
        let idiom = if millis { Idiom::CamelMillis } else { Idiom::SnakeSeconds };
        match idiom.config(["redis://127.0.0.1".to_owned()], [(name.clone(), value.clone())]) {
            Err(error) => { invalid(&error); },
            Ok(config) => if let Err(error) = config.validate() { invalid(&error); },
        }
        match idiom.lock_options([(name, value)]) {
            Err(error) => {
                invalid(&error);
                assert_eq!(idiom.failure(&error).code, "invalid");
            }
            Ok(options) => if let Err(error) = client("").lock("x", options) { invalid(&error); },
        }
    }

    #[test]
    fn a_time_of_a_host_is_refused_or_exact(millis in any::<bool>(), number in number()) {
        let (idiom, unit) = if millis { (Idiom::CamelMillis, 1000.0) } else { (Idiom::SnakeSeconds, 1.0) };
        match idiom.duration("ttl", &Setting::Number(number)) {
            Err(error) => {
                assert_eq!(invalid(&error), "ttl");
                assert!(number.is_nan() || number < 0.0 || number / unit > TEN_YEARS.as_secs_f64(), "{number}: {error}");
            }
            Ok(time) => {
                let off = (time.as_secs_f64() - number / unit).abs();
                assert!(number >= 0.0 && off <= 1e-9 + number / unit * 1e-12, "{number} became {time:?}");
            }
        }
    }
}

// ---- the text of a detached lease -----------------------------------------------------------------------------------

fn armoured(json: &[u8]) -> String {
    format!("redlock1:{}", URL_SAFE_NO_PAD.encode(json))
}

/// A JSON value of any type.
fn json() -> impl Strategy<Value = String> {
    let number = prop_oneof![
        any::<i128>().prop_map(|number| number.to_string()),
        any::<u64>().prop_map(|number| number.to_string())
    ];
    let odd = sample::select(vec![
        "null",
        "true",
        "1e999",
        "-0",
        "\"\\ud800\"",
        "[]",
        "{}",
        "\"\\u0000\"",
        "0",
        "9007199254740993",
    ]);
    let quoted = text().prop_map(|text| serde_json::to_string(&text).unwrap_or_default());
    prop_oneof![number, odd.prop_map(str::to_owned), quoted]
}

fn detached() -> impl Strategy<Value = String> {
    let field = prop_oneof![
        3 => Just("\"5f0e2f5e-98a7-4b6e-9c3a-2b1c7e0d4f11:17\"".to_owned()),
        1 => sample::select(vec!["\"=user-42:7\"", "\"=:7\"", "\"=a:\"", "\"x\"", "\":1\"", "\"a:1\"", "\"=a:b:9\"", "\"=a:-1\""]).prop_map(str::to_owned),
        1 => json(),
    ];
    let ttl = prop_oneof![3 => 50_u64..100_000, 1 => any::<u64>(), 1 => 0_u64..50];
    let kind = prop_oneof![
        4 => (sample::select(vec!["watchdog", "adaptive", "fixed", "other"]), ttl).prop_map(|(kind, ttl)| format!("{{\"{kind}\":{ttl}}}")),
        1 => json(),
    ];
    let or = |usual: &'static str| prop_oneof![5 => Just(usual.to_owned()), 1 => json()];
    let parts = (or("\"report\""), or("\"\""), or("\"redisson\""), field, or("1795249352564870"), kind);
    let whole = parts.prop_map(|(name, prefix, wire, field, token, kind)| {
        format!(
            "{{\"name\":{name},\"prefix\":{prefix},\"wire\":{wire},\"field\":{field},\"token\":{token},\"kind\":{kind}}}"
        )
    });
    let damaged = (whole.clone(), any::<sample::Index>(), 0..3, any::<u8>()).prop_map(|(whole, at, how, byte)| {
        let mut text = armoured(whole.as_bytes()).into_bytes();
        let at = at.index(text.len());
        match how {
            0 => text[at] = byte,
            1 => drop(text.remove(at)),
            _ => text.truncate(at),
        }
        String::from_utf8_lossy(&text).into_owned()
    });
    let deep = (1_usize..100_000, sample::select(vec!["[", "{\"name\":"]))
        .prop_map(|(depth, open)| armoured(open.repeat(depth).as_bytes()));
    prop_oneof![
        6 => whole.prop_map(|json| armoured(json.as_bytes())),
        2 => damaged,
        1 => deep,
        1 => vec(any::<u8>(), 0..200).prop_map(|bytes| armoured(&bytes)),
        1 => text(),
        1 => json().prop_map(|json| armoured(json.as_bytes())),
    ]
}

proptest! {
    #![proptest_config(cases(1_500))]

    #[test]
    fn the_text_of_a_detached_lease_is_refused_or_sane(text in detached(), nodes in sample::select(vec![1_usize, 3])) {
        let settings = Config::new((0..nodes).map(|node| format!("memory://{node}"))).validate().expect("valid");
        match Detached::parse(&text, &settings) {
            Err(error) => assert_eq!(invalid(&error), "text"),
            Ok(detached) => {
                assert!(settings.check_lock(&detached.name, &LockOptions::default()).is_ok());
                assert!(detached.prefix.is_empty() && detached.wire == Wire::Redisson);
                assert!((1..=1 << 53).contains(&detached.token));
                let (ttl, renewed) = detached.kind.lease();
                assert!((Duration::from_millis(50)..=TEN_YEARS).contains(&ttl), "{ttl:?}");
                assert!(!renewed || nodes == 1 || ttl <= Duration::from_secs(60), "{ttl:?} on a quorum");
                let (owner, number) = detached.field.rsplit_once(':').expect("a field");
                assert!(!number.is_empty() && number.bytes().all(|digit| digit.is_ascii_digit()));
                assert!(owner.len() == 36 || (owner.starts_with('=') && (2..=257).contains(&owner.len())), "{owner}");
            }
        }
    }
}
