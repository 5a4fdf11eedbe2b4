//! One process that takes and releases a lock so many times and logs it, for tests with several processes:
//! `contender URLS NAME TIMES LOG`.

use std::{env, fs::OpenOptions, io::Write};

use redlock::{Client, Config, LockError, LockOptions, Owner};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let [urls, name, times, log] = &arguments[..] else { return Err("contender URLS NAME TIMES LOG".into()) };
    let mut log = OpenOptions::new().create(true).append(true).open(log)?;
    let client = Client::new(Config::from_list(urls))?;
    let lock = client.lock(name, LockOptions::default())?;
    let mut go_on = || Ok::<(), LockError>(());
    for _ in 0..times.parse::<u32>()? {
        let lease = lock.acquire_blocking(lock.request(Owner::Fresh), &mut go_on)?;
        let granted = monotonic();
        // Taken before the release is sent: from then on somebody else may hold it.
        let released = monotonic();
        lease.release_blocking(&mut go_on)?;
        log.write_all(format!("grant {0} {granted}\nrelease {0} {released}\n", lease.token()).as_bytes())?;
    }
    Ok(())
}

#[allow(unsafe_code, reason = "the standard library does not read this clock")]
fn monotonic() -> i64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is a valid, writable timespec.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut time) };
    time.tv_sec * 1_000_000_000 + time.tv_nsec
}
