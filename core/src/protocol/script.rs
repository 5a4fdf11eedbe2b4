//! The server-side scripts, as data, and the calls of them. The comment at the top of a script is its contract.

use std::sync::Arc;

use once_cell::race::OnceBox;

use crate::config::Wire;

/// A script, ready to be sent by its SHA-1.
#[derive(Debug)]
pub struct Script {
    /// The name of its file.
    pub name: &'static str,
    /// The wire it was made for.
    pub wire: Wire,
    /// Its source.
    pub source: String,
    /// The SHA-1 of its source, in hex.
    pub sha: String,
}

impl Script {
    /// Whether the script ends a tenure: its key stays until its TTL if the script fails.
    pub(crate) fn ends_tenure(&self) -> bool {
        let (_, name) = self.name.rsplit_once('/').unwrap_or(("", self.name));
        matches!(name, "release" | "leave" | "rest")
    }

    /// `own`: the name and the source of what the scripts of its family share in addition to those of the wire.
    fn new(wire: Wire, name: &'static str, own: (&str, &str), body: &str) -> Self {
        let prelude = match wire {
            Wire::Redisson => include_str!("lua/wire_redisson.lua"),
            Wire::Token => include_str!("lua/wire_token.lua"),
        };
        let body = without_comments(body);
        #[cfg(feature = "simulation")]
        let body = crate::mutant::alter(name, &body).unwrap_or(body);
        let (shared, queue) = (include_str!("lua/wire.lua"), include_str!("lua/queue.lua"));
        #[cfg(feature = "simulation")]
        let queue = &crate::mutant::alter("queue", queue).unwrap_or_else(|| queue.to_owned());
        #[cfg(feature = "simulation")]
        let own = (own.0, &*crate::mutant::alter(own.0, own.1).unwrap_or_else(|| own.1.to_owned()));
        let source = composed(&without_comments(&[shared, prelude, queue, own.1].concat()), &body);
        let sha = sha1_smol::Sha1::from(&source).digest().to_string();
        Self { name, wire, source, sha }
    }
}

/// The line of a script for several calls that the script for one call replaces.
const FOR_ONE: &str = "  -- The script for one.\n";

/// A line of a script. The functions that only the lines below it need are defined there, so that a run that ends above
/// it does not create them.
const LATER: &str = "-- Functions of the rest.\n";

fn without_comments(source: &str) -> String {
    let is_code = |line: &&str| !line.trim_start().starts_with("--") || *line == LATER.trim_end();
    source.lines().filter(is_code).flat_map(|line| [line, "\n"]).collect()
}

/// The body of a script, with each definition that it needs where it is needed first.
fn composed(prelude: &str, body: &str) -> String {
    let (mut source, mut defined) = (String::new(), Vec::new());
    for part in body.split(LATER) {
        let mut more = needed(prelude, part);
        more.retain(|definition| !defined.contains(definition));
        source.extend(more.iter().copied().chain([part]));
        defined.append(&mut more);
    }
    source
}

/// The definitions of a prelude that a body needs, in their order. The others are left out, because each run of a
/// script creates all its functions again. A definition begins with `local` at the start of a line, uses only earlier
/// definitions, and ends where the next one begins.
fn needed<'a>(prelude: &'a str, body: &str) -> Vec<&'a str> {
    let starts = prelude.match_indices("local ").map(|(at, _)| at);
    let starts = starts.filter(|at| *at == 0 || prelude.as_bytes()[at - 1] == b'\n');
    let mut end = prelude.len();
    let mut chosen: Vec<&str> = Vec::new();
    for start in starts.collect::<Vec<_>>().into_iter().rev() {
        let definition = &prelude[start..end];
        end = start;
        let head = definition.split(['=', '(']).next().unwrap_or_default();
        let mut names = words(head).filter(|word| !["local", "function"].contains(word));
        if names.any(|name| words(body).chain(chosen.iter().copied().flat_map(words)).any(|word| word == name)) {
            chosen.push(definition);
        }
    }
    chosen.reverse();
    chosen
}

/// The names and keywords in a text.
fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_').filter(|word| !word.is_empty())
}

/// Defines a set of scripts. `several of one`: the script `several` contains the script `one`.
macro_rules! scripts {
    ($(#[$doc:meta])* $set:ident in $folder:literal with $own:expr; $($name:ident $(of $one:ident)?),* $(,)?) => {
        $(#[$doc])*
        #[derive(Debug)]
        pub struct $set { $(#[doc = concat!("`lua/", $folder, stringify!($name), ".lua`")] pub $name: Script,)* }

        impl $set {
            fn of(wire: Wire) -> Self {
                Self { $($name: Script::new(
                    wire,
                    concat!($folder, stringify!($name)),
                    $own,
                    &include_str!(concat!("lua/", $folder, stringify!($name), ".lua"))
                        $(.replace(FOR_ONE, include_str!(concat!("lua/", $folder, stringify!($one), ".lua"))))?,
                ),)* }
            }

            /// Every script, for tests that go through all of them.
            pub fn all(&self) -> Vec<&Script> {
                vec![$(&self.$name),*]
            }
        }
    };
}

scripts! {
    /// All scripts of one wire format.
    Scripts in "" with ("", "");
    acquire, enter, leave, bump, renew, prolong, repair, release, rest, end, inspect, attach, retime, learn, provision,
}

scripts! {
    /// The scripts of a read/write lock, which both wires write alike.
    ReadWriteScripts in "read_write/" with ("read_write", include_str!("lua/read_write.lua"));
    read, read_batch of read, write, leave, leave_batch of leave, rest, downgrade, upgrade, bump, renew, repair, end,
    inspect, attach,
}

scripts! {
    /// The scripts of a semaphore, which both wires write alike.
    SemaphoreScripts in "semaphore/" with ("semaphore", include_str!("lua/semaphore.lua"));
    acquire, take, relocate, bump, leave, renew, repair, end, inspect, attach,
}

scripts! {
    /// The scripts that look at a whole server, and the one that forgets a lock.
    SurveyScripts in "survey/" with ("", "");
    listeners, queue, scan, forget,
}

/// Defines a function for scripts that both wires share. They are made once, and with a mutant again for each mutant.
macro_rules! made_once {
    ($(#[$doc:meta])* $name:ident: $set:ident) => {
        $(#[$doc])*
        pub fn $name() -> &'static $set {
            static SCRIPTS: OnceBox<$set> = OnceBox::new();
            #[cfg(feature = "simulation")]
            if crate::mutant::alters_scripts() {
                use std::cell::Cell;

                use crate::mutant::{Mutant, current};
                thread_local! { static MADE: Cell<Option<(Mutant, &'static $set)>> = const { Cell::new(None) }; }
                let mutant = current().expect("a fault");
                let made = MADE.get().filter(|(of, _)| *of == mutant);
                let (_, scripts) = made.unwrap_or_else(|| (mutant, Box::leak(Box::new($set::of(Wire::Redisson)))));
                MADE.set(Some((mutant, scripts)));
                return scripts;
            }
            SCRIPTS.get_or_init(|| Box::new($set::of(Wire::Redisson)))
        }
    };
}

made_once! {
    /// The scripts of a read/write lock.
    read_write_scripts: ReadWriteScripts
}

made_once! {
    /// The scripts of a semaphore.
    semaphore_scripts: SemaphoreScripts
}

made_once! {
    /// The scripts that look at a whole server.
    survey_scripts: SurveyScripts
}

/// The scripts for a wire format.
pub fn scripts(wire: Wire) -> &'static Scripts {
    // `OnceBox` never waits for the initialisation by another thread: in the child of a fork that thread does not
    // exist.
    static REDISSON: OnceBox<Scripts> = OnceBox::new();
    static TOKEN: OnceBox<Scripts> = OnceBox::new();
    #[cfg(feature = "simulation")]
    if crate::mutant::alters_scripts() {
        // Made anew for each client, and leaked: there are few with a mutant.
        return Box::leak(Box::new(Scripts::of(wire)));
    }
    let known = match wire {
        Wire::Redisson => &REDISSON,
        Wire::Token => &TOKEN,
    };
    known.get_or_init(|| Box::new(Scripts::of(wire)))
}

/// What a call does while a cluster moves its keys, and some are on one server and some on another.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub enum WhileMoving {
    /// It waits until all keys are on one server.
    #[default]
    Wait,
    /// It fails, and its caller makes several smaller calls.
    Fail,
    /// This call with fewer keys replaces it.
    Instead(Box<ScriptCall>),
}

/// One call of a script. Its clones, for several nodes, share its strings.
#[derive(Clone, Debug)]
pub struct ScriptCall {
    /// The script to run.
    pub script: &'static Script,
    /// Its KEYS.
    pub keys: Arc<Vec<String>>,
    /// Its ARGV.
    pub args: Arc<Vec<String>>,
    /// Whether the node adds three ARGV about itself: its run id, the time in µs since when its keys may be incomplete
    /// (0: unknown), and "1" if every write is on disk before its reply.
    pub identify: bool,
    /// What to do while a cluster moves the keys, and has moved some of them.
    pub while_moving: WhileMoving,
    /// How many replicas must acknowledge its writes.
    pub replicas: u32,
    /// On a cluster the address of the server that runs it, as [`NodeInfo`](crate::NodeInfo) has it; `None`: the one
    /// that serves its keys.
    pub server: Option<Arc<str>>,
    /// The script that makes several such calls at once, if there is one. They differ only in the first ARGV; its call
    /// is [`batch_of`](Self::batch_of).
    pub batch: Option<&'static Script>,
}

impl ScriptCall {
    /// A call to which the node adds no arguments.
    pub fn new(script: &'static Script, keys: Vec<String>, args: Vec<String>) -> Self {
        let (keys, args) = (Arc::new(keys), Arc::new(args));
        let while_moving = WhileMoving::Wait;
        Self { script, keys, args, identify: false, while_moving, replicas: 0, server: None, batch: None }
    }

    /// Appends KEYS and ARGV.
    #[must_use]
    pub fn with(mut self, keys: Vec<String>, args: Vec<String>) -> Self {
        Arc::make_mut(&mut self.keys).extend(keys);
        Arc::make_mut(&mut self.args).extend(args);
        self
    }

    /// Whether it differs from another call only in the first ARGV, and may go with it in one call of [`batch`](Self::batch).
    pub(crate) fn goes_with(&self, other: &Self) -> bool {
        let is_same_batch = matches!((self.batch, other.batch), (Some(one), Some(two)) if std::ptr::eq(one, two));
        is_same_batch && self.keys == other.keys && self.args.get(1..) == other.args.get(1..)
    }

    /// The call that makes this one for each of several first ARGV, at least one. If it is only one, that is this call
    /// with it.
    pub(crate) fn batch_of(&self, firsts: &[&str]) -> Self {
        let mut call = self.clone();
        let args = Arc::make_mut(&mut call.args);
        if let (Some((first, others)), Some(arg)) = (firsts.split_first(), args.first_mut()) {
            (*first).clone_into(arg);
            args.extend(others.iter().map(|other| (*other).to_owned()));
            call.script = self.batch.filter(|_| !others.is_empty()).unwrap_or(self.script);
        }
        call
    }
}

/// The reply of a script.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// A number.
    Int(i64),
    /// A string.
    Text(String),
    /// A list.
    List(Vec<Reply>),
}

impl Reply {
    /// The number, if it is one.
    pub fn int(&self) -> Option<i64> {
        match self {
            Self::Int(number) => Some(*number),
            _ => None,
        }
    }

    /// The list, if it is one.
    pub fn list(&self) -> Option<&[Reply]> {
        match self {
            Self::List(list) => Some(list),
            _ => None,
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test may panic")]
mod tests {
    use super::{FOR_ONE, LATER, composed, read_write_scripts, without_comments, words};

    #[test]
    fn a_function_is_defined_where_it_is_needed_first() {
        let prelude = "local function one() end\nlocal function two() return one() end\nlocal function three() end\n";
        let body = format!("if one() then return end\n{LATER}return two()\n");
        let source = "local function one() end\nif one() then return end\n\
                      local function two() return one() end\nreturn two()\n";
        assert_eq!(composed(prelude, &body), source);
    }

    /// The names that lines with `local` define.
    fn defined(source: &str) -> Vec<&str> {
        let heads =
            source.lines().filter_map(|line| line.trim_start().strip_prefix("local ")?.split(['=', '(']).next());
        heads.flat_map(words).filter(|word| *word != "function").collect()
    }

    /// What the script for one call defines is inside a function of the script for several.
    #[test]
    fn a_script_for_several_calls_does_not_use_what_the_script_for_one_defines() {
        let scripts = read_write_scripts();
        for (one, own, script) in [
            ("read", include_str!("lua/read_write/read_batch.lua"), &scripts.read_batch),
            ("leave", include_str!("lua/read_write/leave_batch.lua"), &scripts.leave_batch),
        ] {
            let behind = without_comments(own.split_once(FOR_ONE).unwrap().1);
            let before = script.source.strip_suffix(&behind).unwrap();
            let (outside, inside) = before.split_once(&format!("local function {one}()\n")).unwrap();
            let (inside, visible) = (defined(inside), [defined(outside), defined(&behind)].concat());
            assert!(inside.len() > 10, "the definitions of the script for one: {inside:?}");
            let missing = words(&behind).find(|word| inside.contains(word) && !visible.contains(word));
            assert_eq!(missing, None, "{}", script.name);
        }
    }
}
