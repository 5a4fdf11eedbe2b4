//! Detach and attach: a lease becomes a text, and another process makes a lease from it. Attach renames the tenure's
//! field on the nodes, so that each text works once.

use std::{
    sync::{Arc, Weak},
    time::Duration,
};

use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};

use crate::{
    acquire::uncollected_grant::{Restart, UncollectedGrant},
    clock::{self, Deadline, Stamp},
    config::{LockOptions, MIN_TTL, NEVER, Settings, Wire, check_duration, check_owner, millis_up},
    error::{LockError, LostReason},
    lease::Lease,
    owner::{Owner, OwnerKey, is_explicit},
    process::driver::Driver,
    protocol::{
        calls::Label,
        names::Names,
        primitive::{Family, Primitive},
        reply::{self, Attached, Slot, TOKENS},
        subject::Subject,
    },
    quorum::{Count, Presence, Right, Spread, clean_up, insist},
    release::begin_release,
    server::{BoxFuture, ConnectionId, NodeErrorKind, SentOn},
    session::{Session, run_to_completion},
    tenure::{Claim, Tenure, Terms},
};

/// The content of a detached lease's text, in JSON.
#[derive(Clone, serde::Serialize, serde::Deserialize)]
pub(crate) struct Detached {
    pub(crate) name: String,
    pub(crate) prefix: String,
    pub(crate) wire: Wire,
    pub(crate) field: String,
    pub(crate) token: u64,
    pub(crate) kind: Kind,
    #[serde(default)]
    pub(crate) primitive: Primitive,
    /// The slots of a permit.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) slots: Vec<Slot>,
    /// The rest of the tenure's `min_hold`, in ms. The next holder counts it from the attach.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) min_hold: Option<u64>,
}

/// How a detached lease is kept alive once it is attached.
#[derive(Clone, Copy, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Kind {
    /// Renewed; its ttl in ms.
    Watchdog(u64),
    /// Renewed, with an adaptive ttl; its current value in ms.
    Adaptive(u64),
    /// Not renewed; its ttl in ms.
    Fixed(u64),
}

impl Kind {
    /// The ttl, and whether the lease is renewed.
    pub(crate) fn lease(self) -> (Duration, bool) {
        match self {
            Self::Fixed(millis) => (Duration::from_millis(millis), false),
            Self::Watchdog(millis) | Self::Adaptive(millis) => (Duration::from_millis(millis), true),
        }
    }
}

const DETACHED: &str = "redlock1:";

impl Detached {
    /// Parses and checks a text, which anybody may have made. A text that passes could have come from `detach()`.
    pub(crate) fn parse(text: &str, settings: &Settings) -> Result<Self, LockError> {
        let bad = |detail: &str| LockError::invalid("text", detail);
        let body = text.strip_prefix(DETACHED).ok_or_else(|| bad("does not come from detach()"))?;
        let json = URL_SAFE_NO_PAD.decode(body).map_err(|_| bad("is damaged"))?;
        let parsed: Self = serde_json::from_slice(&json).map_err(|_| bad("is damaged"))?;
        if parsed.wire != settings.config.wire || parsed.prefix != settings.config.prefix {
            return Err(bad("comes from a client with another wire or prefix"));
        }
        let named = settings.check_lock(&parsed.name, &LockOptions::default()).is_ok()
            && (!is_explicit(&parsed.field) || parsed.primitive.family() == Family::Lock)
            && (settings.endpoints.len() == 1 || !parsed.needs_one_server())
            && parsed.is_permit();
        let counted = i64::try_from(parsed.token).is_ok_and(|token| TOKENS.contains(&token));
        if !named || !counted || !parsed.is_field() {
            return Err(bad("is damaged"));
        }
        match parsed.kind.lease() {
            (ttl, true) => settings.check_ttl("text", ttl)?,
            // A fixed ttl is not requested again, so the quorum's `max_ttl` does not bound it.
            (ttl, false) => check_duration("text", ttl, MIN_TTL)?,
        }
        if let Some(min_hold) = parsed.min_hold() {
            if !parsed.may_rest() {
                return Err(bad("is damaged"));
            }
            check_duration("text", min_hold, Duration::from_millis(1))?;
            settings.check_quorum_ttl("text", min_hold)?;
        }
        Ok(parsed)
    }

    fn min_hold(&self) -> Option<Duration> {
        self.min_hold.map(Duration::from_millis)
    }

    /// Whether its lock may stay taken after the release.
    fn may_rest(&self) -> bool {
        !self.primitive.is_shared() && !is_explicit(&self.field)
    }

    fn needs_one_server(&self) -> bool {
        self.primitive == Primitive::Fair
    }

    /// Whether its slots match its primitive.
    fn is_permit(&self) -> bool {
        let Primitive::Permits { count, of } = self.primitive else { return self.slots.is_empty() };
        let known =
            |slot: &Slot| slot.number < of && i64::try_from(slot.token).is_ok_and(|token| TOKENS.contains(&token));
        self.slots.len() == count as usize
            && self.slots.iter().all(known)
            && self.slots.first().is_some_and(|first| first.token == self.token)
    }

    /// Whether its field has a form that this crate draws: `uuid:number` or `=owner:number`.
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

/// A time in ms, rounded up; `None` for zero.
fn millis_left(time: Duration) -> Option<u64> {
    (!time.is_zero()).then(|| millis_up(time))
}

impl Lease {
    /// Ends this lease without releasing the lock, and returns a text from which `attach` makes a lease again, once, in
    /// this or another process. The tenure and its token stay the same. Nobody renews the lock meanwhile: attach it
    /// before its ttl is over.
    ///
    /// The text is a bearer secret: whoever has it can take over the lock. Fails with `lost` or `not_held` if the lease
    /// has ended, and with `invalid` if it has nested leases, no ttl, or a chosen value. [`Client::attach`] has an
    /// example.
    ///
    /// [`Client::attach`]: crate::Client::attach
    pub fn detach(&self) -> Result<String, LockError> {
        let Some((tenure, session)) = self.tenure_and_session() else {
            return Err(LockError::forked(self.name()));
        };
        // Of the lease that is left: an earlier one of the tenure may have been of another kind.
        let renewed = tenure.renewed_ttl();
        let kind = match renewed.as_millis() as u64 {
            0 => Kind::Fixed(tenure.terms.right.ttl.as_millis() as u64),
            millis if tenure.terms.adaptive => Kind::Adaptive(millis),
            millis => Kind::Watchdog(millis),
        };
        let detached = Detached {
            name: self.name().to_owned(),
            prefix: session.settings.config.prefix.clone(),
            wire: session.settings.config.wire,
            field: tenure.terms.right.field.clone(),
            token: self.token(),
            kind,
            primitive: tenure.primitive(),
            slots: tenure.terms.right.slots.clone(),
            min_hold: millis_left(tenure.min_hold_left()),
        };
        if !detached.is_field() || tenure.terms.right.ttl == NEVER {
            return Err(LockError::invalid(
                "lease",
                "has a value of its taker's own, or no ttl; only its taker knows it",
            ));
        }
        self.let_go()?;
        Ok(detached.text())
    }
}

/// The arguments of an attach.
#[derive(Clone)]
pub(crate) struct Attach {
    pub(crate) session: Arc<Session>,
    pub(crate) names: Arc<Names>,
    pub(crate) detached: Detached,
    pub(crate) owner: Owner,
}

impl Restart for Attach {
    /// Attaches. A grant that is dropped before it is collected has no effect: the text works again.
    fn start(self: Box<Self>) -> BoxFuture<Result<UncollectedGrant, LockError>> {
        Box::pin(run_to_completion(async move {
            let lease = attach((*self).clone()).await?;
            let grant = UncollectedGrant::new(lease, self);
            grant.mark_uncollected();
            Ok(grant)
        }))
    }
}

async fn attach(Attach { session, names, detached, owner }: Attach) -> Result<Lease, LockError> {
    let explicit = detached.field.strip_prefix('=').and_then(|rest| rest.rsplit_once(':'));
    let (key, owner) = match explicit {
        Some((name, _)) => (OwnerKey::Explicit(name.to_owned()), Owner::Explicit(name.to_owned())),
        None => (owner.key(), owner),
    };
    // Until the end of this attach, the next attach of the same text waits.
    let _guard = session.wait_for_previous_attach(&detached.field).await?;
    let ((ttl, renewed), min_hold) = (detached.kind.lease(), detached.min_hold());
    let quorum = session.quorum.clone();
    let subject = Subject::new(detached.primitive, names);
    let mut take_over = TakeOver {
        sent: quorum.nodes.iter().map(|_| SentOn::default()).collect(),
        new: if mutant!(AttachKeepsName) { detached.field.clone() } else { session.fields.draw(&key) },
        old: detached.field,
        subject: subject.clone(),
        slots: detached.slots.clone(),
        session: session.clone(),
        done: false,
    };
    let since = clock::now();
    let presences = take_over.run(if renewed { ttl } else { Duration::ZERO }, ttl, since).await?;
    let claim = Claim::new(renewed.then_some(ttl));
    let terms = Terms {
        subject,
        owner: key,
        right: Right { field: take_over.new.clone(), token: detached.token, slots: detached.slots, since, ttl },
        fixed: !renewed,
        adaptive: matches!(detached.kind, Kind::Adaptive(_)),
        max_hold: None,
        min_hold,
        thread: None,
        identity: owner.watch(),
    };
    let spread = Spread { presences, ..Spread::default() };
    let tenure = Tenure::new(terms, spread, claim.clone(), Weak::new(), quorum, session.events.clone());
    tenure.mark_counters_due();
    let lease = Lease::new(&session, tenure.clone(), claim.clone());
    session.register(&tenure);
    if session.is_closed() {
        // Closed meanwhile. `take_over` undoes the attach.
        let _ = lease.let_go();
        return Err(LockError::Closed);
    }
    take_over.done = true;
    lease.check()?;
    lease.set_instead_of_release(move || match tenure.detach() {
        Ok(()) => {
            session.forget(&tenure);
            take_over.undo();
        }
        // Another call of the same owner has nested in the tenure, or it has ended.
        Err(_) => drop(begin_release(&session, &tenure, &claim)),
    });
    Ok(lease)
}

/// Renames a tenure's field, from the one in the text to one that the new holder drew. Dropped before it is done, it
/// undoes the attach: it renames the field back on every node that may have the new one, ordered after the requests
/// that were sent. Then the text works again.
struct TakeOver {
    session: Arc<Session>,
    subject: Subject,
    slots: Vec<Slot>,
    old: String,
    new: String,
    sent: Vec<SentOn>,
    done: bool,
}

impl TakeOver {
    /// Undoes an attach that was done: the lease was detached again.
    fn undo(mut self) {
        self.done = false;
    }

    fn label<'a>(&'a self, field: &'a str) -> Label<'a> {
        Label { primitive: self.subject.primitive, names: &self.subject.names, field, slots: &self.slots }
    }

    /// The nodes to which the request was sent, in the form that `Quorum::clean_up` takes.
    fn sent_to(&self, which: impl Fn(usize) -> bool) -> impl Iterator<Item = (usize, ConnectionId, bool)> {
        let chosen = self.sent.iter().enumerate().filter(move |(node, _)| which(*node));
        chosen.filter_map(|(node, sent)| Some((node, sent.get()?, true)))
    }

    /// Renames the field on all nodes and extends the tenure to `ttl`, unless it has more left. Once a quorum has done
    /// so, returns where the tenure is. `life`: the longest that it could live when it was detached, unless it was extended
    /// by hand; then a node of each quorum has more left.
    async fn run(&mut self, ttl: Duration, mut life: Duration, since: Stamp) -> Result<Vec<Presence>, LockError> {
        let quorum = &self.session.quorum;
        let call = quorum.protocol.attach(self.label(&self.new), &self.old, ttl);
        let mut answers = quorum.ask(Driver::Background, &call, self.session.settings.config.reply_timeout, &self.sent);
        let mut known: Vec<Option<Presence>> = vec![None; quorum.nodes.len()];
        let (mut there, mut no, mut wrong, mut causes) = (0, 0, 0, Vec::new());
        let counted = answers.count(reply::attached, |node, answer| {
            match answer {
                Ok(Attached::There(left)) => {
                    there += 1;
                    life = life.max(left);
                    known[node] = Some(Presence::Held(Deadline::new(since, self.session.settings.validity(left))));
                }
                Ok(Attached::No) => {
                    no += 1;
                    known[node] = Some(Presence::Absent);
                }
                Err(error) => {
                    wrong += usize::from(error.kind == NodeErrorKind::WrongType);
                    causes.push(quorum.cause(node, error));
                }
            }
            // Not the sum of both: which of them exceeds the spare decides between `lost` and `unavailable`.
            let over = there >= quorum.needed() || no.max(causes.len()) > quorum.spare();
            if over { Count::Decided(()) } else { Count::More }
        });
        let _: Option<()> = counted.await;
        let missed: Vec<bool> = known.iter().map(Option::is_none).collect();
        // A request that is not sent yet must not arrive after the release of the old field, or after the request that
        // undoes the attach.
        let presence = |(known, sent): (Option<Presence>, &SentOn)| known.unwrap_or_else(|| Presence::given_up(sent));
        let presences: Vec<Presence> = known.into_iter().zip(&self.sent).map(presence).collect();
        if there >= quorum.needed() {
            quorum.spawn(answers.see_through());
            self.release_old(&missed, life);
            return Ok(presences);
        }
        drop(answers);
        if no > quorum.spare() {
            // The tenure has ended, or another attach has it. The new field on too few nodes would only block others.
            self.done = true;
            let call = quorum.protocol.release(self.label(&self.new), true);
            drop(quorum.clean_up(self.sent_to(|node| !matches!(presences[node], Presence::Absent)), &call));
            return Err(LockError::Lost { name: self.subject.name().to_owned(), reason: LostReason::Taken });
        }
        if wrong > quorum.spare() {
            return Err(LockError::Conflict { key: self.subject.names.lock.clone() });
        }
        Err(quorum.unavailable(causes))
    }

    /// Releases the old field on the nodes that may have missed the request: nobody else would ever release it there.
    /// `life`: the longest that the tenure could live then.
    fn release_old(&self, missed: &[bool], life: Duration) {
        let quorum = &self.session.quorum;
        let call = quorum.protocol.release(self.label(&self.old), false);
        for node in (0..missed.len()).filter(|node| missed[*node]) {
            let (target, call) = (quorum.nodes[node].clone(), call.clone());
            let call = move || call.clone();
            match self.sent[node].get() {
                Some(connection) => quorum.spawn_pending(clean_up(target, connection, call, true)),
                None => quorum.spawn_pending(insist(target, call, life)),
            }
        }
    }
}

impl Drop for TakeOver {
    fn drop(&mut self) {
        if self.done || mutant!(AttachForgets) {
            return;
        }
        let quorum = &self.session.quorum;
        let call = quorum.protocol.attach(self.label(&self.old), &self.new, Duration::ZERO);
        let call = if mutant!(AttachReleases) { quorum.protocol.release(self.label(&self.new), true) } else { call };
        let done = quorum.clean_up(self.sent_to(|_| true), &call);
        self.session.note_undo(&self.old, done);
    }
}
