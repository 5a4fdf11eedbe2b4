//! Wall clocks of servers, one for each, that a test can set and make run faster. The C file beside this one is
//! compiled with `cc` on first use and preloaded into the server, where it reads its settings from a mapped file.

use std::{
    env, fs,
    hash::{DefaultHasher, Hash, Hasher},
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
    process::{Command, id},
    sync::{
        LazyLock,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::{Duration, SystemTime},
};

const SOURCE: &str = include_str!("clocks.c");

/// The library is kept for later runs. A hash of the source is part of its name.
static LIBRARY: LazyLock<PathBuf> = LazyLock::new(|| {
    let mut hash = DefaultHasher::new();
    SOURCE.hash(&mut hash);
    let library = env::temp_dir().join(format!("redlock-clocks-{:016x}.so", hash.finish()));
    if !library.exists() {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/clocks.c");
        // Renaming a complete file is safe even if several processes build it.
        let new = env::temp_dir().join(format!("redlock-clocks-{}.so", id()));
        let mut compiler = Command::new("cc");
        compiler.args(["-std=gnu11", "-Wall", "-Wextra", "-Werror", "-O2", "-shared", "-fPIC", "-o"]);
        let built = compiler.arg(&new).arg(&source).arg("-ldl").status().expect("a C compiler");
        assert!(built.success(), "{} was not compiled", source.display());
        fs::rename(&new, &library).expect("a name for the library");
    }
    library
});

/// The wall clock of one server.
#[derive(Debug)]
pub struct WallClock {
    path: PathBuf,
    file: fs::File,
}

impl WallClock {
    /// A clock that starts at the right time and runs faster by this many parts per million.
    pub fn new(faster_ppm: i64) -> Self {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let path = env::temp_dir().join(format!("redlock-clock-{}-{}", id(), NUMBER.fetch_add(1, Relaxed)));
        let file = fs::File::create(&path).expect("a file for the clock");
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let settings = [0, faster_ppm, now.as_nanos() as i64].map(i64::to_ne_bytes).concat();
        file.write_all_at(&settings, 0).expect("a clock's settings");
        Self { path, file }
    }

    /// The environment variables for the start of its server.
    pub fn environment(&self) -> [(&'static str, &Path); 2] {
        [("LD_PRELOAD", &LIBRARY), ("REDLOCK_CLOCK", &self.path)]
    }

    /// Sets it forward by `by`, or back, from the right time.
    pub fn set(&self, by: Duration, forward: bool) {
        let nanos = by.as_nanos() as i64;
        let nanos = if forward { nanos } else { -nanos };
        self.file.write_all_at(&nanos.to_ne_bytes(), 0).expect("a clock's settings");
    }
}

impl Drop for WallClock {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::Server;

    fn seconds(server: &Server) -> i64 {
        server.command::<(i64, i64)>(&["TIME"]).0
    }

    fn now() -> i64 {
        SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs().cast_signed()
    }

    #[test]
    fn a_server_expires_keys_by_its_own_clock() {
        let clock = WallClock::new(0);
        let server = Server::launch(&[], &clock.environment());
        assert!((seconds(&server) - now()).abs() < 10);
        let _: () = server.command(&["SET", "x", "1", "EX", "600"]);
        clock.set(Duration::from_secs(300), true);
        assert!((seconds(&server) - now() - 300).abs() < 10);
        let left: i64 = server.command(&["TTL", "x"]);
        assert!((250..=300).contains(&left), "{left}");
        clock.set(Duration::from_secs(700), true);
        assert!(!server.command::<bool>(&["EXISTS", "x"]));
        clock.set(Duration::from_secs(300), false);
        assert!((seconds(&server) - now() + 300).abs() < 10);
    }

    #[test]
    fn a_server_s_clock_runs_faster() {
        // A million times faster, so that one reading is enough.
        let clock = WallClock::new(1_000_000_000_000);
        let server = Server::launch(&[], &clock.environment());
        assert!(seconds(&server) > now() + 1000);
    }
}
