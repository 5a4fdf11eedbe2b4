//! The keys of a simulated server, and the real scripts on them: those Redis commands that the scripts use, in Lua 5.1
//! as on a server. A randomised test compares it with real servers, so that the simulation's findings are valid for
//! these.

use std::{
    cell::RefCell,
    collections::{BTreeMap, HashMap},
};

use mlua::{Function, Lua, MultiValue, Table, Value as LuaValue};
use redlock::{
    protocol::script::{Reply, ScriptCall},
    server::{NodeError, NodeErrorKind},
};

/// The keys of a server, and its condition.
#[derive(Clone, Debug, Default)]
pub struct Store {
    /// All keys. An expired key is removed on access.
    pub keys: BTreeMap<String, Entry>,
    /// The wall clock of the server in µs. Time stands still during a script.
    pub now: i64,
    /// The commands that it refuses.
    pub refuses: Refuses,
    /// Channels published to since the list was last taken.
    pub published: Vec<String>,
    /// Whether the script has written: after its first write a script is not stopped for lack of memory.
    wrote: bool,
}

/// The commands that a server refuses with an error.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Refuses {
    /// Nothing.
    #[default]
    Nothing,
    /// Every command that needs memory.
    OutOfMemory,
    /// Every write.
    ReadOnly,
    /// Everything: the server loads its data set, or runs a long script.
    Busy,
}

/// The value of a key, and its expiry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Its value.
    pub value: Value,
    /// The wall-clock time of expiry in ms; `None` for never.
    pub expires: Option<i64>,
}

/// A string, a hash or a sorted set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    /// A string.
    Text(String),
    /// A hash, in the order of insertion.
    Hash(Vec<(String, String)>),
    /// A sorted set with integer scores, sorted.
    Sorted(Vec<(i64, String)>),
}

const WRONG_TYPE: &str = "WRONGTYPE Operation against a key holding the wrong kind of value";

/// The result of a command.
enum Answer {
    Nothing,
    Int(i64),
    Text(String),
    List(Vec<String>),
    Ok,
}

/// The field and the slots of a semaphore's permit, "field|3,7".
fn permit_of(permit: &str) -> Option<(String, Vec<u32>)> {
    let (field, slots) = permit.rsplit_once('|')?;
    Some((field.to_owned(), slots.split(',').map(str::parse).collect::<Result<_, _>>().ok()?))
}

impl Store {
    fn now_ms(&self) -> i64 {
        self.now / 1000
    }

    /// The entry of a key, unless it has expired. As on a server, a key lives through the millisecond in which it
    /// expires.
    pub fn entry(&mut self, key: &str) -> Option<&mut Entry> {
        let now = self.now_ms();
        if self.keys.get(key).is_some_and(|entry| entry.expires.is_some_and(|at| now > at)) {
            self.keys.remove(key);
        }
        self.keys.get_mut(key)
    }

    /// The fields that hold a lock on this server, in either wire format.
    pub fn tenures(&mut self, key: &str) -> Vec<String> {
        match self.entry(key).map(|entry| &entry.value) {
            None => Vec::new(),
            Some(Value::Sorted(permits)) => {
                permits.iter().filter_map(|(_, permit)| permit_of(permit)).map(|(field, _)| field).collect()
            }
            Some(Value::Text(text)) => vec![text.clone()],
            Some(Value::Hash(fields)) => {
                let fields = fields.iter().map(|(field, _)| field.as_str()).filter(|field| *field != "mode");
                fields.map(|field| field.strip_suffix(":write").unwrap_or(field).to_owned()).collect()
            }
        }
    }

    /// The "mode" of a read/write lock: how it is held.
    pub fn mode(&mut self, key: &str) -> Option<String> {
        let fields = self.hash(key).ok()??;
        fields.iter().find(|(field, _)| field == "mode").map(|(_, mode)| mode.clone())
    }

    /// The tenures whose leases are not over. One of several readers' leases can end before the key does.
    pub fn live(&mut self, key: &str) -> Vec<String> {
        let mut tenures = self.tenures(key);
        if let Some(Value::Sorted(_)) = self.entry(key).map(|entry| &entry.value) {
            return self.permits(key).into_iter().map(|(field, _)| field).collect();
        }
        if self.mode(key).as_deref() == Some("read") {
            let (now, leases) = (self.now, self.members(&format!("redlock_readers:{{{key}}}")));
            tenures.retain(|field| leases.iter().any(|(until, reader)| reader == field && *until > now));
        }
        tenures
    }

    /// The permits of a semaphore whose leases are not over, with their slots.
    pub fn permits(&mut self, key: &str) -> Vec<(String, Vec<u32>)> {
        let now = self.now;
        let live = self.members(key).into_iter().filter(|(until, _)| *until > now);
        live.filter_map(|(_, permit)| permit_of(&permit)).collect()
    }

    /// The token counter of a lock; 0 if there is none.
    pub fn counter(&mut self, lock: &str) -> u64 {
        let text = self.text(&format!("redlock_token:{{{lock}}}"));
        text.ok().flatten().and_then(|text| text.parse().ok()).unwrap_or_default()
    }

    fn text(&mut self, key: &str) -> Result<Option<String>, String> {
        match self.entry(key).map(|entry| &entry.value) {
            None => Ok(None),
            Some(Value::Text(text)) => Ok(Some(text.clone())),
            Some(Value::Hash(_) | Value::Sorted(_)) => Err(WRONG_TYPE.to_owned()),
        }
    }

    fn hash(&mut self, key: &str) -> Result<Option<&mut Vec<(String, String)>>, String> {
        match self.entry(key).map(|entry| &mut entry.value) {
            None => Ok(None),
            Some(Value::Hash(fields)) => Ok(Some(fields)),
            Some(Value::Text(_) | Value::Sorted(_)) => Err(WRONG_TYPE.to_owned()),
        }
    }

    fn sorted(&mut self, key: &str) -> Result<Option<&mut Vec<(i64, String)>>, String> {
        match self.entry(key).map(|entry| &mut entry.value) {
            None => Ok(None),
            Some(Value::Sorted(members)) => Ok(Some(members)),
            Some(Value::Text(_) | Value::Hash(_)) => Err(WRONG_TYPE.to_owned()),
        }
    }

    /// The members of a sorted set.
    pub fn members(&mut self, key: &str) -> Vec<(i64, String)> {
        self.sorted(key).ok().flatten().cloned().unwrap_or_default()
    }

    /// Removes members of a sorted set. Returns how many.
    fn remove_members(&mut self, key: &str, which: impl Fn(i64, &str) -> bool) -> Result<Answer, String> {
        let Some(members) = self.sorted(key)? else { return Ok(Answer::Int(0)) };
        let before = members.len();
        members.retain(|(score, member)| !which(*score, member));
        let (removed, empty) = (before - members.len(), members.is_empty());
        if empty {
            self.keys.remove(key);
        }
        Ok(Answer::Int(removed.cast_signed() as i64))
    }

    fn command(&mut self, words: &[String]) -> Result<Answer, String> {
        let name = words.first().map(|word| word.to_ascii_uppercase()).unwrap_or_default();
        let word = |at: usize| words.get(at).map_or("", String::as_str);
        let number = |at: usize| whole(word(at));
        let writes = matches!(
            &*name,
            "SET"
                | "GETEX"
                | "HSET"
                | "HINCRBY"
                | "DEL"
                | "HDEL"
                | "PEXPIRE"
                | "ZADD"
                | "ZREM"
                | "ZPOPMIN"
                | "ZREMRANGEBYSCORE"
        );
        if writes && self.refuses == Refuses::ReadOnly {
            return Err("READONLY You can't write against a read only replica.".to_owned());
        }
        let needs_memory = matches!(&*name, "SET" | "HSET" | "HINCRBY" | "ZADD");
        if needs_memory && self.refuses == Refuses::OutOfMemory && !self.wrote {
            return Err("OOM command not allowed when used memory > 'maxmemory'.".to_owned());
        }
        self.wrote |= writes;
        let key = word(1);
        Ok(match &*name {
            "TIME" => Answer::List(vec![(self.now / 1_000_000).to_string(), (self.now % 1_000_000).to_string()]),
            "GET" => self.text(key)?.map_or(Answer::Nothing, Answer::Text),
            "GETEX" => {
                let at = self.now_ms() + number(3)?;
                let text = self.text(key)?;
                if let Some(entry) = self.entry(key) {
                    entry.expires = Some(at);
                }
                text.map_or(Answer::Nothing, Answer::Text)
            }
            "EXISTS" => {
                let there = |key: &&String| self.entry(key).is_some();
                Answer::Int(words[1..].iter().filter(there).count().cast_signed() as i64)
            }
            "DEL" => {
                let there = |key: &&String| self.entry(key).is_some() && self.keys.remove(*key).is_some();
                Answer::Int(words[1..].iter().filter(there).count().cast_signed() as i64)
            }
            "PTTL" => {
                let now = self.now_ms();
                Answer::Int(self.entry(key).map_or(-2, |entry| entry.expires.map_or(-1, |at| (at - now).max(0))))
            }
            "PEXPIRE" => {
                let ttl = number(2)?;
                let at = self.now_ms() + ttl;
                let there = self.entry(key).map(|entry| entry.expires = Some(at)).is_some();
                if there && ttl <= 0 {
                    self.keys.remove(key);
                }
                Answer::Int(there.into())
            }
            "SET" => {
                let has = |option: &str| words.iter().skip(3).any(|word| word == option);
                let gets = has("GET");
                if has("NX") && self.entry(key).is_some() {
                    return Ok(Answer::Nothing);
                }
                let before = if gets { self.text(key)? } else { None };
                let expires = match word(3) {
                    "PX" if number(4)? <= 0 => return Err("ERR invalid expire time in 'set' command".to_owned()),
                    "PX" => Some(self.now_ms() + number(4)?),
                    _ => None,
                };
                self.keys.insert(key.to_owned(), Entry { value: Value::Text(word(2).to_owned()), expires });
                if gets { before.map_or(Answer::Nothing, Answer::Text) } else { Answer::Ok }
            }
            "PUBLISH" => {
                self.published.push(key.to_owned());
                Answer::Int(1)
            }
            hash if hash.starts_with('H') => return self.command_of_hashes(&name, words),
            _ => return self.command_of_sorted_sets(&name, words),
        })
    }

    fn command_of_hashes(&mut self, name: &str, words: &[String]) -> Result<Answer, String> {
        let word = |at: usize| words.get(at).map_or("", String::as_str);
        let number = |at: usize| whole(word(at));
        let key = word(1);
        Ok(match name {
            "HEXISTS" => {
                let field = word(2);
                let there = self.hash(key)?.is_some_and(|fields| fields.iter().any(|(known, _)| known == field));
                Answer::Int(there.into())
            }
            "HKEYS" => {
                let fields = self.hash(key)?;
                Answer::List(fields.map(|all| all.iter().map(|(f, _)| f.clone()).collect()).unwrap_or_default())
            }
            "HGET" => {
                let field = word(2);
                let known = self.hash(key)?.and_then(|all| all.iter().find(|(known, _)| known == field));
                known.map_or(Answer::Nothing, |(_, value)| Answer::Text(value.clone()))
            }
            "HLEN" => Answer::Int(self.hash(key)?.map_or(0, |all| all.len()).cast_signed() as i64),
            "HGETALL" => {
                let all = self.hash(key)?.cloned().unwrap_or_default();
                Answer::List(all.into_iter().flat_map(|(field, value)| [field, value]).collect())
            }
            "HSET" if words.len() > 4 => {
                self.hash(key)?;
                self.for_each_pair(words, 2)?
            }
            "HSET" | "HINCRBY" => {
                let (field, value) = (word(2), word(3));
                self.hash(key)?;
                let fresh = || Entry { value: Value::Hash(Vec::new()), expires: None };
                self.keys.entry(key.to_owned()).or_insert_with(fresh);
                let fields = self.hash(key)?.into_iter().next().ok_or("ERR no hash")?;
                let known = fields.iter_mut().find(|(known, _)| known == field).map(|(_, value)| value);
                let old = known.as_ref().map_or("0", |value| value).to_owned();
                let new = if name == "HSET" {
                    value.to_owned()
                } else {
                    (old.parse::<i64>().unwrap_or_default() + number(3)?).to_string()
                };
                let (added, result) = (known.is_none(), new.parse().unwrap_or_default());
                match known {
                    Some(value) => *value = new,
                    None => fields.push((field.to_owned(), new)),
                }
                Answer::Int(if name == "HSET" { added.into() } else { result })
            }
            "HDEL" => {
                let Some(fields) = self.hash(key)? else { return Ok(Answer::Int(0)) };
                let before = fields.len();
                fields.retain(|(known, _)| !words[2..].contains(known));
                let (removed, empty) = (before - fields.len(), fields.is_empty());
                if empty {
                    self.keys.remove(key);
                }
                Answer::Int(removed.cast_signed() as i64)
            }
            other => return Err(format!("ERR unknown command '{other}'")),
        })
    }

    /// Runs a command that has several pairs of arguments, from `first` on, once for each. Returns the sum of its replies.
    fn for_each_pair(&mut self, words: &[String], first: usize) -> Result<Answer, String> {
        let mut sum = 0;
        for pair in words[first..].chunks(2) {
            let one = [&words[..first], pair].concat();
            if let Answer::Int(reply) = self.command(&one)? {
                sum += reply;
            }
        }
        Ok(Answer::Int(sum))
    }

    fn command_of_sorted_sets(&mut self, name: &str, words: &[String]) -> Result<Answer, String> {
        let word = |at: usize| words.get(at).map_or("", String::as_str);
        let number = |at: usize| whole(word(at));
        let key = word(1);
        Ok(match name {
            "ZADD" if words.len() > 4 && !["XX", "GT"].contains(&word(2)) => {
                self.sorted(key)?;
                self.for_each_pair(words, 2)?
            }
            "ZADD" if words.len() > 5 && word(2) == "GT" && word(3) != "XX" => {
                self.sorted(key)?;
                self.for_each_pair(words, 3)?
            }
            "ZADD" => {
                let options = words[2..].iter().take_while(|word| ["XX", "GT"].contains(&&***word)).count();
                let has = |option: &str| words[2..2 + options].iter().any(|word| word == option);
                let (known_only, greater) = (has("XX"), has("GT"));
                let (score, member) = (number(2 + options)?, word(3 + options));
                let is_known = self.sorted(key)?.is_some_and(|all| all.iter().any(|(_, known)| known == member));
                if known_only && !is_known {
                    return Ok(Answer::Int(0));
                }
                let fresh = || Entry { value: Value::Sorted(Vec::new()), expires: None };
                self.keys.entry(key.to_owned()).or_insert_with(fresh);
                let members = self.sorted(key)?.into_iter().next().ok_or("ERR no sorted set")?;
                let known = members.iter().position(|(_, known)| known == member);
                let old = known.map(|at| members.remove(at).0);
                let score = old.filter(|old| greater && *old > score).unwrap_or(score);
                let at = members.partition_point(|(other, name)| (*other, &**name) < (score, member));
                members.insert(at, (score, member.to_owned()));
                Answer::Int(old.is_none().into())
            }
            "ZREM" => self.remove_members(key, |_, known| words[2..].iter().any(|member| member == known))?,
            "ZPOPMIN" => {
                let head = self.sorted(key)?.and_then(|all| all.first().cloned());
                let Some((score, member)) = head else { return Ok(Answer::List(Vec::new())) };
                self.remove_members(key, |_, known| *known == member)?;
                Answer::List(vec![member, score.to_string()])
            }
            "ZREMRANGEBYSCORE" => {
                let most = number(3)?;
                self.remove_members(key, |score, _| score <= most)?
            }
            "ZSCORE" | "ZRANK" => {
                let member = word(2);
                let members = self.sorted(key)?.cloned().unwrap_or_default();
                match members.iter().position(|(_, known)| known == member) {
                    None => Answer::Nothing,
                    Some(at) if name == "ZRANK" => Answer::Int(at.cast_signed() as i64),
                    Some(at) => Answer::Text(members[at].0.to_string()),
                }
            }
            "ZCARD" => Answer::Int(self.sorted(key)?.map_or(0, |all| all.len()).cast_signed() as i64),
            // Up to the last member, or up to a rank from the first: the scripts use nothing else.
            "ZRANGE" => {
                let (first, last) = (number(2)?, number(3)?);
                let all = self.sorted(key)?.cloned().unwrap_or_default();
                let count = if last == -1 { all.len() } else { usize::try_from(last - first + 1).unwrap_or_default() };
                let first = usize::try_from(first).map_err(|_| "ERR another range")?;
                let scores = word(4) == "WITHSCORES";
                let shown = |(score, member): (i64, String)| [Some(member), scores.then(|| score.to_string())];
                Answer::List(all.into_iter().skip(first).take(count).flat_map(shown).flatten().collect())
            }
            "ZRANGEBYSCORE" => {
                let (most, all) = (number(3)?, self.sorted(key)?.cloned().unwrap_or_default());
                let limit =
                    if word(4) == "LIMIT" { usize::try_from(number(6)?).unwrap_or_default() } else { all.len() };
                let until = all.into_iter().filter(|(score, _)| *score <= most);
                Answer::List(until.take(limit).map(|(_, member)| member).collect())
            }
            "ZREVRANGE" => {
                self.sorted(key)?;
                let last = self.members(key).last().cloned();
                Answer::List(last.map(|(score, member)| vec![member, score.to_string()]).unwrap_or_default())
            }
            other => return Err(format!("ERR unknown command '{other}'")),
        })
    }

    /// Runs one command whose reply is a number, or OK, which counts as 1.
    pub fn integer(&mut self, words: &[String]) -> Result<i64, String> {
        match self.command(words)? {
            Answer::Int(number) => Ok(number),
            Answer::Ok => Ok(1),
            _ => Err("ERR another answer".to_owned()),
        }
    }

    /// Runs a script. As on a server, writes before an error stay.
    pub fn run(&mut self, call: &ScriptCall) -> Result<Reply, NodeError> {
        if self.refuses == Refuses::Busy {
            let text = "BUSY Redis is busy running a script.";
            return Err(NodeError::new(NodeErrorKind::NotRun, text));
        }
        self.wrote = false;
        let result = ENGINE.with(|engine| {
            CURRENT.set(Some(std::mem::take(self)));
            let result = engine.run(call);
            *self = CURRENT.take().unwrap_or_default();
            result
        });
        result.map_err(|text| {
            let kind = if text.contains("WRONGTYPE") { NodeErrorKind::WrongType } else { NodeErrorKind::Refused };
            NodeError::new(kind, text)
        })
    }
}

thread_local! {
    static ENGINE: Engine = Engine::new().expect("Lua starts");
    /// The store that the running script works on.
    static CURRENT: RefCell<Option<Store>> = const { RefCell::new(None) };
}

/// Redis' functions for scripts to call commands, and the conversion of a script's end into a reply. Every user has
/// every permission.
const PRELUDE: &str = r"
redis = { pcall = command, acl_check_cmd = function() return true end }
function redis.call(...)
  local reply = command(...)
  if type(reply) == 'table' and reply.err then error(reply, 0) end
  return reply
end
function execute(script)
  local fine, reply = pcall(script)
  if fine then return reply end
  if type(reply) == 'table' and reply.err then return reply end
  return { err = 'ERR ' .. tostring(reply) }
end
";

/// A Lua interpreter that compiles each script once.
struct Engine {
    lua: Lua,
    execute: Function,
    scripts: RefCell<HashMap<String, Function>>,
}

impl Engine {
    fn new() -> mlua::Result<Self> {
        let lua = Lua::new();
        let command = lua.create_function(|lua, words: MultiValue| {
            let words = words.iter().map(|word| text(lua, word)).collect::<mlua::Result<Option<Vec<String>>>>()?;
            let answer = CURRENT.with_borrow_mut(|store| match (store, words) {
                (Some(store), Some(words)) => store.command(&words),
                (_, None) => Err("ERR Lua redis lib command arguments must be strings or integers".to_owned()),
                (None, _) => Err("ERR no store".to_owned()),
            });
            Ok(match answer {
                Ok(Answer::Nothing) => LuaValue::Boolean(false),
                Ok(Answer::Int(number)) => LuaValue::Number(number as f64),
                Ok(Answer::Text(text)) => LuaValue::String(lua.create_string(text)?),
                Ok(Answer::List(list)) => LuaValue::Table(lua.create_sequence_from(list)?),
                Ok(Answer::Ok) => LuaValue::Table(lua.create_table_from([("ok", "OK")])?),
                Err(text) => LuaValue::Table(lua.create_table_from([("err", text)])?),
            })
        })?;
        lua.globals().set("command", command)?;
        lua.load(PRELUDE).exec()?;
        let execute = lua.globals().get("execute")?;
        Ok(Self { lua, execute, scripts: RefCell::default() })
    }

    fn run(&self, call: &ScriptCall) -> Result<Reply, String> {
        let reply: mlua::Result<LuaValue> = (|| {
            let known = self.scripts.borrow().get(&call.script.sha).cloned();
            let script = if let Some(script) = known {
                script
            } else {
                let script = self.lua.load(&*call.script.source).set_name(call.script.name).into_function()?;
                self.scripts.borrow_mut().insert(call.script.sha.clone(), script.clone());
                script
            };
            let globals = self.lua.globals();
            globals.set("KEYS", self.lua.create_sequence_from(call.keys.iter().map(String::as_str))?)?;
            globals.set("ARGV", self.lua.create_sequence_from(call.args.iter().map(String::as_str))?)?;
            self.execute.call(script)
        })();
        reply.map_err(|error| error.to_string()).and_then(convert)
    }
}

/// An argument of a command, as Redis converts it; `None` if it is neither a string nor a number.
fn text(lua: &Lua, word: &LuaValue) -> mlua::Result<Option<String>> {
    match word {
        // `%.17g`, which is how Redis writes a number that a script passes.
        LuaValue::Number(number) if number.fract() == 0.0 => Ok(Some(format!("{number:.0}"))),
        LuaValue::Integer(number) => Ok(Some(number.to_string())),
        LuaValue::String(_) | LuaValue::Number(_) => {
            lua.coerce_string(word.clone())?.map(|text| Ok(text.to_str()?.to_owned())).transpose()
        }
        _ => Ok(None),
    }
}

/// Converts a script's return value to the reply that its caller gets.
fn convert(value: LuaValue) -> Result<Reply, String> {
    match value {
        LuaValue::Integer(number) => Ok(Reply::Int(number)),
        LuaValue::Number(number) => Ok(Reply::Int(number as i64)),
        LuaValue::Boolean(true) => Ok(Reply::Int(1)),
        LuaValue::String(text) => Ok(Reply::Text(text.to_string_lossy())),
        LuaValue::Table(table) => list(&table),
        _ => Err("ERR a reply of nothing".to_owned()),
    }
}

fn list(table: &Table) -> Result<Reply, String> {
    if let Ok(Some(error)) = table.get::<Option<String>>("err") {
        return Err(error);
    }
    let mut replies = Vec::new();
    for value in table.sequence_values::<LuaValue>() {
        replies.push(convert(value.map_err(|error| error.to_string())?)?);
    }
    Ok(Reply::List(replies))
}

fn whole(text: &str) -> Result<i64, String> {
    text.parse().map_err(|_| "ERR value is not an integer or out of range".to_owned())
}
