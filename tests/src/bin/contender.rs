//! One process that acquires and releases a lock TIMES times and logs it, for tests with several processes: `contender
//! URLS NAME TIMES LOG [HOLD_MS [PAUSE_MS [WIRE [PREFIX [KIND]]]]]`. It holds the lock for up to `HOLD_MS`, then pauses for up
//! to `PAUSE_MS` to let others go first. With a pause it also logs the time of each call. WIRE and PREFIX are the wire
//! format and the key prefix. KIND is `lock`, `fair`, `read_write` (most turns are readers') or `semaphore:SLOTS` (a turn
//! acquires one slot or two). With a KIND it also logs what each turn holds.

use std::{env, error::Error, fs::OpenOptions, io::Write, thread::sleep, time::Duration};

use redlock::{Client, Config, LockError, LockOptions, Owner};
use redlock_tests::{
    history::{self, Hold, Kind},
    process::monotonic,
    target::{Target, share_of},
};

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let [urls, name, times, log, more @ ..] = &arguments[..] else {
        return Err("contender URLS NAME TIMES LOG".into());
    };
    let duration = |at: usize| more.get(at).map_or(Ok(0), |text| text.parse::<u64>());
    let (hold, pause) = (duration(0)?, duration(1)?);
    let rest = |most: u64| {
        if most > 0 {
            sleep(Duration::from_micros(fastrand::u64(0..=most * 1000)));
        }
    };
    let mut log = OpenOptions::new().create(true).append(true).open(log)?;
    let mut config = Config::from_list(urls);
    if let Some(wire) = more.get(2) {
        config.wire = wire.parse()?;
    }
    config.prefix = more.get(3).cloned().unwrap_or_default();
    let client = Client::new(config)?;
    let kind = more.get(4).map(|word| Kind::of_word(word).ok_or("KIND is wrong")).transpose()?;
    let target = Target::new(&client, kind.unwrap_or_default(), name, LockOptions::default())?;
    let mut dice = fastrand::Rng::new();
    let mut go_on = || Ok::<(), LockError>(());
    for turn in 0..times.parse::<u32>()? {
        let (lock, share) = target.draw(&mut dice)?;
        let asked = monotonic();
        let called = if pause > 0 { format!(" {asked}") } else { String::new() };
        let lease = lock.acquire_interruptible(lock.request(Owner::Fresh), &mut go_on)?;
        let granted = monotonic();
        rest(hold);
        // This time is read before the release is sent, since another owner may hold the lock after that. A lease that
        // is held after this moment was held at it.
        let released = monotonic();
        let until = lease.held().then_some(released);
        lease.release_interruptible(&mut go_on)?;
        let token = lease.token();
        let lines = if kind.is_some() {
            let (turn, share) = (turn.to_string(), share_of(&lease, share));
            let hold = Hold { token: Some(token), share, called: asked, from: granted, ..Hold::default() };
            history::grant(&hold, &turn) + &history::release(token, &turn, until, None)
        } else {
            let end = until.map_or_else(String::new, |time| format!("release {token} {time}\n"));
            format!("grant {token} {granted}{called}\n{end}")
        };
        log.write_all(lines.as_bytes())?;
        rest(pause);
    }
    Ok(())
}
