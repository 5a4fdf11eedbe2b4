//! A lease between two holders: the text it becomes, and what makes a lease of that text again.

use std::{
    sync::{Arc, Weak},
    time::Duration,
};

use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};

use crate::{
    answer::{self, Attached, TOKENS},
    clock::{self, Deadline},
    config::{LockOptions, MIN_TTL, NEVER, Settings, Wire, check_duration, check_owner},
    error::{LockError, LostReason},
    hold::{Claim, Fate, Hold, Terms},
    home::Home,
    lease::Lease,
    node::Lane,
    owner::{Owner, OwnerKey},
    quorum::{Grant, Keys, Place},
};

/// The text of a detached lease, in JSON.
#[derive(serde::Serialize, serde::Deserialize)]
pub(crate) struct Detached {
    pub(crate) name: String,
    pub(crate) prefix: String,
    pub(crate) wire: Wire,
    pub(crate) field: String,
    pub(crate) token: u64,
    pub(crate) kind: Kind,
}

/// How a detached lease lives on once it is attached.
#[derive(Clone, Copy, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Kind {
    /// Renewed, with this many milliseconds.
    Watchdog(u64),
    /// Adaptive, with this many milliseconds now.
    Adaptive(u64),
    /// Never renewed; took so many milliseconds.
    Fixed(u64),
}

impl Kind {
    /// The length of its lease, and whether it is renewed.
    pub(crate) fn lease(self) -> (Duration, bool) {
        match self {
            Self::Fixed(millis) => (Duration::from_millis(millis), false),
            Self::Watchdog(millis) | Self::Adaptive(millis) => (Duration::from_millis(millis), true),
        }
    }
}

const DETACHED: &str = "redlock1:";

impl Detached {
    /// Reads a text, which anybody may have made. What passes could have come from `detach()`.
    pub(crate) fn parse(text: &str, settings: &Settings) -> Result<Self, LockError> {
        let bad = |detail: &str| LockError::invalid("text", detail);
        let body = text.strip_prefix(DETACHED).ok_or_else(|| bad("does not come from detach()"))?;
        let json = URL_SAFE_NO_PAD.decode(body).map_err(|_| bad("is damaged"))?;
        let parsed: Self = serde_json::from_slice(&json).map_err(|_| bad("is damaged"))?;
        if parsed.wire != settings.config.wire || parsed.prefix != settings.config.prefix {
            return Err(bad("comes from a client with another wire or prefix"));
        }
        let named = settings.check_lock(&parsed.name, &LockOptions::default()).is_ok();
        let counted = i64::try_from(parsed.token).is_ok_and(|token| TOKENS.contains(&token));
        if !named || !counted || !parsed.is_field() {
            return Err(bad("is damaged"));
        }
        match parsed.kind.lease() {
            (ttl, true) => settings.check_ttl("text", ttl)?,
            // Nobody asks for this ttl again, so that the quorum's bound is no matter.
            (ttl, false) => check_duration("text", ttl, MIN_TTL)?,
        }
        Ok(parsed)
    }

    /// Whether its field is one that this crate draws: `uuid:number` or `=owner:number`.
    fn is_field(&self) -> bool {
        let Some((of, number)) = self.field.rsplit_once(':') else { return false };
        let owned = match of.strip_prefix('=') {
            Some(owner) => check_owner(owner).is_ok(),
            None => uuid::Uuid::try_parse(of).is_ok(),
        };
        owned && !number.is_empty() && number.bytes().all(|digit| digit.is_ascii_digit())
    }

    fn text(&self) -> String {
        // Plain strings and numbers always serialise.
        DETACHED.to_owned() + &URL_SAFE_NO_PAD.encode(serde_json::to_vec(self).unwrap_or_default())
    }
}

impl Lease {
    /// Stops renewing and lets go of the lock without releasing it. The text is a bearer secret: `attach` takes the
    /// lock over from it, in this or another process, once.
    pub fn detach(&self) -> Result<String, LockError> {
        let Some((hold, home)) = self.parts() else {
            return Err(self.ended(Fate::Lost(LostReason::Forked)));
        };
        let millis = hold.terms.ttl.as_millis() as u64;
        let kind = match hold.terms {
            ref terms if terms.adaptive => Kind::Adaptive(millis),
            ref terms if terms.fixed => Kind::Fixed(millis),
            _ => Kind::Watchdog(millis),
        };
        let detached = Detached {
            name: self.name().to_owned(),
            prefix: home.settings.config.prefix.clone(),
            wire: home.settings.config.wire,
            field: hold.terms.field.clone(),
            token: self.token(),
            kind,
        };
        if !detached.is_field() || hold.terms.ttl == NEVER {
            return Err(LockError::invalid(
                "lease",
                "has a value of its taker's own, or no ttl; only its taker knows it",
            ));
        }
        self.let_go()?;
        Ok(detached.text())
    }
}

pub(crate) async fn attach(
    home: Arc<Home>,
    keys: Arc<Keys>,
    detached: Detached,
    owner: Owner,
) -> Result<Lease, LockError> {
    let explicit = detached.field.strip_prefix('=').and_then(|rest| rest.rsplit_once(':'));
    let (key, owner) = match explicit {
        Some((name, _)) => (OwnerKey::Explicit(name.to_owned()), Owner::Explicit(name.to_owned())),
        None => (owner.key(), owner),
    };
    let (ttl, renewed) = detached.kind.lease();
    let fixed = !renewed;
    let field = home.tenures.draw(&key);
    let quorum = home.quorum.clone();
    let since = clock::now();
    let wanted = if fixed { Duration::ZERO } else { ttl };
    let call = quorum.attach_call(&keys, &detached.field, &field, wanted);
    let replies = quorum.gather(Lane::Background, &call, answer::attached).await?;
    let mut places = vec![Place::Maybe(None); quorum.nodes.len()];
    let mut attached = 0;
    for (node, reply) in replies {
        places[node] = match reply {
            Attached::There(left) => Place::Yes(Deadline::new(since, home.settings.validity(left))),
            Attached::No => Place::No,
        };
        attached += usize::from(reply != Attached::No);
    }
    if attached < quorum.needed() {
        let call = quorum.release_call(&keys, &field, true);
        for (node, place) in places.iter().enumerate().filter(|(_, place)| !matches!(place, Place::No)) {
            let _ = place;
            let limit = home.settings.config.reply_timeout;
            let release = quorum.nodes[node].eval(Lane::Background, call.clone(), limit, <_>::default());
            quorum.spawn_chore(async move {
                // Not confirmed, it dies with its ttl.
                let _ = release.await;
            });
        }
        let name = keys.name.clone();
        return Err(LockError::Lost { name, reason: LostReason::Taken });
    }
    let claim = Claim::new((!fixed).then_some(ttl));
    let terms = Terms {
        keys,
        owner: key,
        field,
        ttl,
        fixed,
        adaptive: matches!(detached.kind, Kind::Adaptive(_)),
        max_hold: None,
        thread: None,
        identity: owner.watch(),
    };
    let grant = Grant { token: detached.token, since, places, late: <_>::default(), sent: Vec::new() };
    let hold = Hold::new(terms, grant, claim.clone(), Weak::new(), quorum, home.events.clone());
    let lease = Lease::new(&home, hold.clone(), claim);
    home.settle(&hold);
    lease.check()?;
    Ok(lease)
}
