//! Faults of other lock libraries, switched on one at a time to show that the simulation finds them. Compiled only for
//! tests; in a product `mutant!` is the constant `false`.

/// Whether a fault is switched on.
#[cfg(feature = "simulation")]
macro_rules! mutant {
    ($name:ident) => {
        $crate::mutant::is($crate::mutant::Mutant::$name)
    };
}

/// Whether a fault is switched on: never.
#[cfg(not(feature = "simulation"))]
macro_rules! mutant {
    ($name:ident) => {
        false
    };
}

#[cfg(feature = "simulation")]
pub use switched::{Mutant, mutate};

#[cfg(feature = "simulation")]
pub(crate) use switched::{alter, alters_scripts, current, is};

#[cfg(feature = "simulation")]
mod switched {
    use std::cell::Cell;

    /// A fault, and the libraries that have it.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub enum Mutant {
        /// The deadline counts from the reply, not from before the request.
        DeadlineFromReply,
        /// The clock is not read again before an acquire returns (node-redlock).
        NoCheckOnReturn,
        /// A renewal that succeeds after the deadline revives the tenure.
        ResumeAfterDeadline,
        /// The lease counts as held for as long as the server keeps the key: no margin for clock drift (Redisson).
        NoMargin,
        /// All attempts of an acquire write the same value (redsync, rslock).
        ValueReused,
        /// A release deletes the key without checking who holds it.
        ReleaseUnchecked,
        /// Half of the nodes are enough.
        HalfQuorum,
        /// The token is the largest granted one, and the other nodes' counters are not raised to it.
        NaiveMax,
        /// Nodes are raised to the token without a check of what happened there since the grant.
        BumpUnconditional,
        /// Nodes are raised to the token if they hold the value, even if others were granted there in between.
        BumpByValue,
        /// The key counts holds: an acquire adds one, a release subtracts one (Redisson).
        CountHolds,
        /// A renewal writes the key anew when it is gone (redsync).
        RenewalRecreates,
        /// An acquire without a reply is resent.
        RetryUnknown,
        /// A release is sent only to the nodes that are known to hold the lock.
        ReleaseKnownOnly,
        /// A failed attempt keeps the votes it got (node-redlock).
        KeepPartialVotes,
        /// A waiter relies on messages alone.
        NoPoll,
        /// The holder learns of a loss only from a renewal that fails with an error, not at the deadline
        /// (node-redlock).
        LostOnlyOnError,
        /// Time is read from a clock that stops while the machine is suspended.
        MonotonicOnly,
        /// A nested acquire does not check whether the tenure was lost.
        NestAfterLoss,
        /// The watchdog knows one tenure for each lock, not all of them (Redisson).
        RenewalByLock,
        /// An uncollected grant is never given back.
        OfferKept,
        /// The background does not take over a call that its caller no longer polls.
        CallUnattended,
        /// A text can be attached more than once: attach does not rename the field on the nodes.
        AttachKeepsName,
        /// An attach that is given up releases the lock.
        AttachReleases,
        /// An attach that fails or is given up leaves the tenure under the new name.
        AttachForgets,
        /// A waiter that gives up keeps its place in the queue.
        PlaceKept,
        /// A repeated request for a place moves the waiter to the end of the queue.
        PlaceAnew,
        /// Waiters of a client that is gone keep their places (Redisson, for five minutes each).
        DeadPlaceKept,
        /// A try acquires a free lock although others wait.
        TryBarges,
        /// The deadline of a queued acquire counts from the reply, not from before the request.
        PlaceDeadlineFromReply,
        /// A waiter that gives up leaves the queue, and keeps a lock that it was handed meanwhile.
        LeaveKeepsGrant,
        /// A reader's release deletes the lock although others read.
        ReaderEndsAll,
        /// Readers are removed before their own leases are over, by the leases of others (redis-semaphore).
        ReadersPurgedEarly,
        /// A reader becomes the writer although others read.
        UpgradeBesideReaders,
        /// A writer that becomes a reader does not wake the waiting readers (Redisson).
        DowngradeTellsNobody,
        /// Readers get the token of the writer before them.
        ReadersHaveWritersToken,
        /// The token counter of a held lock is not prolonged.
        CounterEnds,
        /// A release frees the lock although its `min_hold` is not over.
        RestForgotten,
        /// After a release the tenure keeps the lock until its `min_hold` is over.
        RestOwned,
        /// A permit counts on every node that granted any slots: each node counts its holders (redis-semaphore).
        SlotsCounted,
        /// A permit is moved to slots that other permits have.
        MoveSeizes,
        /// The deadline of a permit that the reply to a release has counts from that reply.
        DeliveryDeadlineFromReply,
    }

    impl Mutant {
        /// All of them.
        pub const ALL: [Self; 42] = [
            Self::DeadlineFromReply,
            Self::NoCheckOnReturn,
            Self::ResumeAfterDeadline,
            Self::NoMargin,
            Self::ValueReused,
            Self::ReleaseUnchecked,
            Self::HalfQuorum,
            Self::NaiveMax,
            Self::BumpUnconditional,
            Self::BumpByValue,
            Self::CountHolds,
            Self::RenewalRecreates,
            Self::RetryUnknown,
            Self::ReleaseKnownOnly,
            Self::KeepPartialVotes,
            Self::NoPoll,
            Self::LostOnlyOnError,
            Self::MonotonicOnly,
            Self::NestAfterLoss,
            Self::RenewalByLock,
            Self::OfferKept,
            Self::CallUnattended,
            Self::AttachKeepsName,
            Self::AttachReleases,
            Self::AttachForgets,
            Self::PlaceKept,
            Self::PlaceAnew,
            Self::DeadPlaceKept,
            Self::TryBarges,
            Self::PlaceDeadlineFromReply,
            Self::LeaveKeepsGrant,
            Self::ReaderEndsAll,
            Self::ReadersPurgedEarly,
            Self::UpgradeBesideReaders,
            Self::DowngradeTellsNobody,
            Self::ReadersHaveWritersToken,
            Self::CounterEnds,
            Self::RestForgotten,
            Self::RestOwned,
            Self::SlotsCounted,
            Self::MoveSeizes,
            Self::DeliveryDeadlineFromReply,
        ];

        /// The texts that it replaces in a script, and their replacements.
        fn edits(self, script: &str) -> &'static [(&'static str, &'static str)] {
            match (self, script) {
                (Self::ReleaseUnchecked, "release") => {
                    &[("if not remove(KEYS[1], ARGV[1]) then return 0 end", "redis.call('DEL', KEYS[1])")]
                }
                (Self::BumpUnconditional, "bump") => &[(
                    "if not holds(KEYS[1], ARGV[1]) or redis.call('GET', KEYS[2]) ~= ARGV[2] then return 0 end",
                    "if tonumber(redis.call('GET', KEYS[2]) or 0) >= tonumber(ARGV[3]) then return 1 end",
                )],
                (Self::BumpByValue, "bump") => &[(" or redis.call('GET', KEYS[2]) ~= ARGV[2]", "")],
                (Self::CountHolds, "acquire") => &[(
                    " and holds(key, field) then\n",
                    " and holds(key, field) then\n  redis.call('HINCRBY', key, field, 1)\n",
                )],
                (Self::CountHolds, "release") => &[(
                    "if not remove(KEYS[1], ARGV[1]) then return 0 end",
                    "if not holds(KEYS[1], ARGV[1]) then return 0 end\n\
                     if redis.call('HINCRBY', KEYS[1], ARGV[1], -1) < 1 then remove(KEYS[1], ARGV[1]) end",
                )],
                (Self::RenewalRecreates, "renew") => &[(
                    "    else replies[i] = 0 end",
                    "    elseif ttl ~= '0' then put(key, field, ttl) replies[i] = 1\n    else replies[i] = 0 end",
                )],
                (Self::RestOwned, "rest") => &[("rename(KEYS[1], ARGV[1], ARGV[2], ARGV[3])\n", "")],
                (Self::PlaceAnew, "queue") => &[("if not ticket then", "if true then")],
                (Self::DeadPlaceKept, "queue") => &[
                    (
                        "if alive_until > now then return entry, alive_until,",
                        "if true then return entry, now + 5000000,",
                    ),
                    ("if alive_until > now then\n", "alive_until = now + 5000000\n    if true then\n"),
                ],
                (Self::TryBarges, "enter") => {
                    &[("if not head then return grant() end", "if not head or ARGV[6] == '0' then return grant() end")]
                }
                (Self::LeaveKeepsGrant, "leave") => &[(
                    "local removed = remove(KEYS[1], ARGV[1])",
                    "local removed = ARGV[2] == '' and remove(KEYS[1], ARGV[1])",
                )],
                (Self::ReaderEndsAll, "read_write/leave") => {
                    &[("removed and redis.call('HLEN', lock) == 1\n", "removed\n")]
                }
                (Self::ReadersPurgedEarly, "read_write") => &[(
                    "redis.call('ZRANGEBYSCORE', readers, '-inf', string.format('%.0f', now))",
                    "redis.call('ZRANGEBYSCORE', readers, '-inf', string.format('%.0f', now + 1000000))",
                )],
                (Self::UpgradeBesideReaders, "read_write/upgrade") => {
                    &[("if redis.call('HLEN', lock) > 2 then", "if false then")]
                }
                (Self::DowngradeTellsNobody, "read_write/downgrade") => {
                    &[("else let_readers_in(now, micros) end", "end")]
                }
                (Self::ReadersHaveWritersToken, "read_write") => {
                    &[("return string.format('%.0f', last + 1)", "return string.format('%.0f', last)")]
                }
                (Self::MoveSeizes, "semaphore/relocate") => {
                    &[("if ends and not code and can_have(its, wanted) then", "if ends and not code then")]
                }
                _ => &[],
            }
        }
    }

    thread_local! { static CURRENT: Cell<Option<Mutant>> = const { Cell::new(None) }; }

    /// Switches a fault on for clients made on the current thread from now on, `None` for none.
    pub fn mutate(mutant: Option<Mutant>) {
        CURRENT.set(mutant);
    }

    pub(crate) fn current() -> Option<Mutant> {
        CURRENT.get()
    }

    pub(crate) fn is(mutant: Mutant) -> bool {
        CURRENT.get() == Some(mutant)
    }

    pub(crate) fn alters_scripts() -> bool {
        use Mutant::{
            BumpByValue, BumpUnconditional, CountHolds, DeadPlaceKept, DowngradeTellsNobody, LeaveKeepsGrant,
            MoveSeizes, PlaceAnew, ReaderEndsAll, ReadersHaveWritersToken, ReadersPurgedEarly, ReleaseUnchecked,
            RenewalRecreates, RestOwned, TryBarges, UpgradeBesideReaders,
        };
        let known = [
            BumpByValue,
            BumpUnconditional,
            CountHolds,
            DeadPlaceKept,
            DowngradeTellsNobody,
            LeaveKeepsGrant,
            MoveSeizes,
            PlaceAnew,
            ReaderEndsAll,
            ReadersHaveWritersToken,
            ReadersPurgedEarly,
            ReleaseUnchecked,
            RenewalRecreates,
            RestOwned,
            TryBarges,
            UpgradeBesideReaders,
        ];
        CURRENT.get().is_some_and(|mutant| known.contains(&mutant))
    }

    /// The source of a script with the current fault in it; `None` if that does not change this script.
    pub(crate) fn alter(script: &str, source: &str) -> Option<String> {
        let edits = CURRENT.get().map(|mutant| mutant.edits(script)).unwrap_or_default();
        let mut altered = (!edits.is_empty()).then(|| source.to_owned())?;
        for (from, to) in edits {
            assert!(altered.contains(from), "{script} has no {from:?}");
            altered = altered.replacen(from, to, 1);
        }
        Some(altered)
    }
}
