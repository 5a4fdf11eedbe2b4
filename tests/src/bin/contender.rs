//! One process that takes and releases a lock so many times and logs it, for tests with several processes:
//! `contender URLS NAME TIMES LOG [HOLD_MS]`, to hold it for up to so many milliseconds.

use std::{env, fs::OpenOptions, io::Write, thread::sleep, time::Duration};

use redlock::{Client, Config, LockError, LockOptions, Owner};
use redlock_tests::process::monotonic;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let [urls, name, times, log, hold @ ..] = &arguments[..] else {
        return Err("contender URLS NAME TIMES LOG".into());
    };
    let hold = hold.first().map_or(Ok(0), |text| text.parse::<u64>())?;
    let mut log = OpenOptions::new().create(true).append(true).open(log)?;
    let client = Client::new(Config::from_list(urls))?;
    let lock = client.lock(name, LockOptions::default())?;
    let mut go_on = || Ok::<(), LockError>(());
    for _ in 0..times.parse::<u32>()? {
        let lease = lock.acquire_blocking(lock.request(Owner::Fresh), &mut go_on)?;
        let granted = monotonic();
        if hold > 0 {
            sleep(Duration::from_micros(fastrand::u64(0..=hold * 1000)));
        }
        // Taken before the release is sent: from then on somebody else may hold it. Held after this moment, it was at it.
        let released = monotonic();
        let end = if lease.held() { format!("release {} {released}\n", lease.token()) } else { String::new() };
        lease.release_blocking(&mut go_on)?;
        log.write_all(format!("grant {} {granted}\n{end}", lease.token()).as_bytes())?;
    }
    Ok(())
}
