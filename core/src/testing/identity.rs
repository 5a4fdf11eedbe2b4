//! Names of connections: each is read as it was written, and no text that somebody else writes is misread.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use proptest::prelude::*;

use super::*;
use crate::config::Config;

fn sample() -> Identity {
    Identity {
        version: "1.2.3".to_owned(),
        client: "0f6b7d0e-9f3c-4b1e-8a53-6f1d2c3b4a59".to_owned(),
        host: "web-3".to_owned(),
        pid: 812,
        app: "billing".to_owned(),
        nodes: 5,
        quorum: 3,
        wire: Wire::Redisson,
        max_ttl: Duration::from_secs(60),
        prefix_hash: 0xaf63_dc4c_8601_ec8c,
    }
}

/// Identities with texts of any length and of any characters but control characters.
fn identities() -> impl Strategy<Value = Identity> {
    let text = || "[^\\p{Cc}]{0,80}";
    let numbers = (any::<u32>(), any::<usize>(), any::<usize>(), any::<u64>(), any::<u64>());
    (text(), text(), any::<u128>(), any::<bool>(), numbers).prop_map(
        |(host, app, client, token, (pid, nodes, quorum, millis, prefix_hash))| Identity {
            client: uuid::Uuid::from_u128(client).to_string(),
            wire: if token { Wire::Token } else { Wire::Redisson },
            max_ttl: Duration::from_millis(millis),
            ..Identity { host, pid, app, nodes, quorum, prefix_hash, ..sample() }
        },
    )
}

#[test]
fn a_name_has_the_documented_form() {
    let name = "redlock/1.2.3;h=web-3;a=billing;p=812;u=0f6b7d0e-9f3c-4b1e-8a53-6f1d2c3b4a59;n=5;q=3;w=r;m=60000;\
                f=af63dc4c8601ec8c";
    assert_eq!(sample().to_name(), name);
    assert_eq!(Identity::parse(name), Some(sample()));
}

#[test]
fn the_hash_of_a_prefix_is_that_of_the_specification() {
    for (prefix, hash) in [("", 0xcbf2_9ce4_8422_2325), ("a", 0xaf63_dc4c_8601_ec8c), ("foobar", 0x8594_4171_f739_67e8)]
    {
        assert_eq!(fnv1a(prefix.as_bytes()), hash, "{prefix:?}");
    }
}

#[test]
fn long_values_are_cut_after_a_whole_character() {
    let long = |host: &str, app: &str| {
        let identity = Identity { host: host.to_owned(), app: app.to_owned(), ..sample() };
        let name = identity.to_name();
        assert!(name.len() <= MOST_BYTES, "{name}");
        let read = Identity::parse(&name).unwrap();
        assert!(host.starts_with(&read.host) && app.starts_with(&read.app), "{name}");
        (read.host.len(), read.app.len(), name.len())
    };
    let (host, app, bytes) = long(&"h".repeat(300), &"a".repeat(300));
    assert!(host > 30 && host.abs_diff(app) <= 1 && bytes >= MOST_BYTES - 1, "{host} {app} {bytes}");
    // The short value stays whole.
    assert_eq!(long("web-3", &"a".repeat(300)).0, "web-3".len());
    assert_eq!(long(&"h".repeat(300), "billing").1, "billing".len());
    // Each of these has six bytes in a name.
    let (_, app, _) = long("web-3", &"ü".repeat(300));
    assert_eq!(app % "ü".len(), 0);
}

#[test]
fn control_characters_are_not_shown() {
    let identity = Identity { host: "a\nb".to_owned(), app: "\u{1b}[31m".to_owned(), ..sample() };
    let read = Identity::parse(&identity.to_name()).unwrap();
    assert_eq!((read.host.as_str(), read.app.as_str()), ("a?b", "?[31m"));
    // Another program may write them.
    assert_eq!(Identity::parse(&sample().to_name().replace("web-3", "web%0A3")), None);
}

#[test]
fn other_names_are_no_identity() {
    let name = sample().to_name();
    for field in name.strip_prefix(HEAD).unwrap().split(';').skip(1) {
        assert_eq!(Identity::parse(&name.replacen(&format!(";{field}"), "", 1)), None, "without {field}");
    }
    for other in ["", "redlock", "redlock/", "redlock/1.2.3", "billing", &name[1..], &format!("{name};x")] {
        assert_eq!(Identity::parse(other), None, "{other:?}");
    }
    for (from, to) in
        [("p=812", "p=-1"), ("w=r", "w=x"), ("u=0f6b7d0e", "u=0f6b7d0"), ("h=web-3", "h=%"), ("n=5", "n=")]
    {
        assert_eq!(Identity::parse(&name.replacen(from, to, 1)), None, "{to}");
    }
    // A later version may add fields.
    assert_eq!(Identity::parse(&format!("{name};z=1")), Some(sample()));
}

#[test]
fn a_client_describes_itself() {
    let mut config = Config::new(["memory://a", "memory://b", "memory://c"]);
    (config.app, config.prefix, config.wire) = (Some("billing".to_owned()), "a".to_owned(), Wire::Token);
    let settings = config.validate().unwrap();
    let identity = Identity::new(&settings, &sample().client);
    let Identity { version, host, pid, .. } = identity.clone();
    assert_eq!((version.as_str(), pid), (env!("CARGO_PKG_VERSION"), std::process::id()));
    assert_eq!(identity, Identity { version, host, pid, nodes: 3, quorum: 2, wire: Wire::Token, ..sample() });
}

#[test]
fn a_client_is_known_in_its_process_while_it_lives() {
    let identity = Arc::new(Identity { client: uuid::Uuid::new_v4().to_string(), ..sample() });
    assert_eq!(in_this_process(&identity.client), None);
    announce(&identity);
    assert_eq!(in_this_process(&identity.client), Some(identity.clone()));
    let client = identity.client.clone();
    drop(identity);
    assert_eq!(in_this_process(&client), None);
}

proptest! {
    #[test]
    fn a_name_is_short_and_printable(identity in identities()) {
        let name = identity.to_name();
        prop_assert!(name.len() <= MOST_BYTES, "{} bytes: {name}", name.len());
        prop_assert!(name.bytes().all(|byte| byte.is_ascii_graphic()), "{name}");
    }

    #[test]
    fn a_name_is_read_as_it_was_written(identity in identities()) {
        let read = Identity::parse(&identity.to_name()).unwrap();
        prop_assert!(identity.host.starts_with(&read.host) && identity.app.starts_with(&read.app));
        let (host, app) = (read.host.clone(), read.app.clone());
        prop_assert_eq!(read.clone(), Identity { host, app, ..identity });
        // What was cut is written the same way again.
        prop_assert_eq!(Identity::parse(&read.to_name()), Some(read));
    }

    #[test]
    fn any_text_is_read_or_refused(name in "\\PC*", tail in "[ -~]{0,60}") {
        for name in [name, format!("{HEAD}{tail}"), format!("{};{tail}", sample().to_name())] {
            if let Some(read) = Identity::parse(&name) {
                let shown = read.host.clone() + &read.app;
                prop_assert!(!shown.contains(char::is_control), "{:?}", shown);
                prop_assert!(read.to_name().len() <= MOST_BYTES);
            }
        }
    }
}
