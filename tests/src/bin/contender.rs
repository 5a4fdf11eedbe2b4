//! One process that acquires and releases a lock TIMES times and logs it, for tests with several processes: `contender
//! URLS NAME TIMES LOG [HOLD_MS [PAUSE_MS [WIRE [PREFIX]]]]`. It holds the lock for up to `HOLD_MS`, then pauses for up
//! to `PAUSE_MS` to let others go first. With a pause it also logs the time of each call. WIRE and PREFIX are the wire
//! format and the key prefix.

use std::{env, error::Error, fs::OpenOptions, io::Write, thread::sleep, time::Duration};

use redlock::{Client, Config, LockError, LockOptions, Owner};
use redlock_tests::process::monotonic;

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
    let lock = client.lock(name, LockOptions::default())?;
    let mut go_on = || Ok::<(), LockError>(());
    for _ in 0..times.parse::<u32>()? {
        let called = if pause > 0 { format!(" {}", monotonic()) } else { String::new() };
        let lease = lock.acquire_interruptible(lock.request(Owner::Fresh), &mut go_on)?;
        let granted = monotonic();
        rest(hold);
        // This time is read before the release is sent, since another owner may hold the lock after that. A lease that
        // is held after this moment was held at it.
        let released = monotonic();
        let end = if lease.held() { format!("release {} {released}\n", lease.token()) } else { String::new() };
        lease.release_interruptible(&mut go_on)?;
        log.write_all(format!("grant {} {granted}{called}\n{end}", lease.token()).as_bytes())?;
        rest(pause);
    }
    Ok(())
}
