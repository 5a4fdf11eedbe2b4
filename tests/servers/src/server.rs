//! A real `redis-server` for one test, on a free port of 127.0.0.1 with its own directory. A test can kill, restart,
//! freeze and query it. This type owns the process: dropping it kills the process and removes the directory. The server
//! persists nothing unless a test asks for it, so a restart loses every key.

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio, id},
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    thread::sleep,
    time::{Duration, Instant},
};

use redis::{Cmd, Connection, FromRedisValue, RedisResult};

use crate::{PATIENCE, port::Port, process::signal};

/// The time-out of a command; a frozen server answers none.
const REPLY: Duration = Duration::from_secs(5);

/// In an option, this stands for the server's directory.
const DIRECTORY: &str = "{directory}";

/// The value of the option `--unixsocket`, for a server with a socket file.
pub const SOCKET: &str = "{directory}/socket";

/// The environment variable that names another program than the installed `redis-server`: another version, or Valkey.
pub const PROGRAM: &str = "REDLOCK_REDIS_SERVER";

/// The server program under test.
pub fn program() -> String {
    env::var(PROGRAM).ok().filter(|program| !program.is_empty()).unwrap_or_else(|| "redis-server".to_owned())
}

/// A redis-server process.
#[derive(Debug)]
pub struct Server {
    port: Port,
    directory: PathBuf,
    extra: Vec<String>,
    environment: Vec<(String, PathBuf)>,
    child: Option<Child>,
    frozen: bool,
    /// Whether its port uses TLS. Then it has a socket file.
    tls: bool,
    /// Whether it has a socket file. Then a test queries it there.
    has_socket: bool,
}

impl Server {
    /// Starts a server without persistence.
    pub fn start() -> Self {
        Self::with_args(&[])
    }

    /// Starts a server with these options, as on the command line of `redis-server`. It persists nothing unless one of
    /// them says so.
    pub fn with_args(args: &[&str]) -> Self {
        Self::launch(args, &[])
    }

    /// Starts a server with such options and with environment variables.
    pub fn launch(args: &[&str], environment: &[(&str, &Path)]) -> Self {
        Self::launch_with(args, environment, None)
    }

    fn launch_with(args: &[&str], environment: &[(&str, &Path)], configuration: Option<&str>) -> Self {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let directory = env::temp_dir().join(format!("redlock-{}-{}", id(), NUMBER.fetch_add(1, Relaxed)));
        fs::create_dir_all(&directory).expect("a directory for the server");
        let usual: &[&str] = if configuration.is_none() { &["--save", "", "--appendonly", "no"] } else { &[] };
        let extra = usual.iter().chain(args).map(|&arg| arg.to_owned()).collect();
        let tls = args.contains(&"--tls-cert-file") || configuration.is_some_and(|text| text.contains("tls-cert-file"));
        let environment = environment.iter().map(|(name, value)| ((*name).to_owned(), value.to_path_buf())).collect();
        let mut server = Self {
            port: Port::free(),
            directory,
            extra,
            environment,
            child: None,
            frozen: false,
            tls,
            has_socket: tls || args.contains(&SOCKET),
        };
        for _ in 0..20 {
            if let Some(text) = configuration {
                fs::write(server.directory.join("sentinel.conf"), text).expect("a configuration");
            }
            if server.run() {
                return server;
            }
            // Another program may have taken the port.
            server.port = Port::free();
        }
        panic!("no redis-server could be started; is it installed?");
    }

    /// Starts a Sentinel with this configuration, which it rewrites.
    pub fn sentinel(configuration: &str) -> Self {
        Self::launch_with(&["{directory}/sentinel.conf", "--sentinel"], &[], Some(configuration))
    }

    /// The server's own directory.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// The port it listens on, the same after a restart.
    pub fn port(&self) -> u16 {
        self.port.number()
    }

    /// Its URL.
    pub fn url(&self) -> String {
        format!("{}://127.0.0.1:{}", if self.tls { "rediss" } else { "redis" }, self.port())
    }

    /// Its socket file. It exists if the port uses TLS, or if an option names it ([`SOCKET`]).
    pub fn socket(&self) -> PathBuf {
        self.directory.join("socket")
    }

    /// The pid, while the process runs.
    pub fn pid(&self) -> Option<u32> {
        self.child.as_ref().map(Child::id)
    }

    /// True if it can answer.
    pub fn is_up(&self) -> bool {
        self.child.is_some() && !self.frozen
    }

    /// Kills it, as a power cut would.
    pub fn stop(&mut self) {
        if let Some(mut child) = self.child.take() {
            // Fails only if the process has ended.
            let _ = child.kill();
            let _ = child.wait();
        }
        self.frozen = false;
    }

    /// Starts it again on the same port, and returns once it answers. Does nothing if it runs.
    pub fn restart(&mut self) {
        assert!(self.child.is_some() || self.run(), "redis-server did not come back on port {}", self.port());
    }

    /// Starts it again on the same port with more options, which must make loading slow. Returns while it loads its
    /// keys.
    pub fn restart_loading(&mut self, args: &[&str]) {
        self.stop();
        let usual = self.extra.len();
        self.extra.extend(args.iter().map(|&arg| arg.to_owned()));
        let started = self.run_until(|info| info.contains("\nloading:1\r"));
        self.extra.truncate(usual);
        assert!(started, "redis-server did not come back on port {}", self.port());
    }

    /// Suspends it: connections stay open, and no request is answered.
    pub fn freeze(&mut self) {
        self.signal(libc::SIGSTOP);
        self.frozen = true;
    }

    /// Resumes it.
    pub fn thaw(&mut self) {
        self.signal(libc::SIGCONT);
        self.frozen = false;
    }

    /// Opens a connection for the test's own queries.
    pub fn connect(&self) -> RedisResult<Connection> {
        let url = if self.has_socket { format!("unix://{}", self.socket().display()) } else { self.url() };
        let connection = redis::Client::open(url)?.get_connection_with_timeout(REPLY)?;
        connection.set_read_timeout(Some(REPLY))?;
        Ok(connection)
    }

    /// Runs one command. Panics if it fails.
    pub fn command<T: FromRedisValue>(&self, words: &[&str]) -> T {
        let mut command = Cmd::new();
        command.arg(words);
        self.connect().and_then(|mut connection| command.query(&mut connection)).expect("a command on a running server")
    }

    /// The number of clients that listen for the release of the lock at `key`.
    pub fn waiting(&self, key: &str) -> usize {
        let channels = release_channels(key);
        let counts: Vec<redis::Value> =
            self.command(&[&["PUBSUB", "NUMSUB"], &channels.each_ref().map(String::as_str)[..]].concat());
        counts
            .iter()
            .filter_map(|count| if let redis::Value::Int(count) = count { usize::try_from(*count).ok() } else { None })
            .sum()
    }

    /// Starts the process and waits until it answers. False if it ended instead, for example because the port is in
    /// use.
    fn run(&mut self) -> bool {
        // Sentinels load nothing.
        self.run_until(|info| !info.contains("\nloading:1\r"))
    }

    /// Starts the process and waits until it answers with an INFO that is `wanted`.
    fn run_until(&mut self, wanted: impl Fn(&str) -> bool) -> bool {
        let (port, socket) = (self.port().to_string(), self.socket());
        let mut command = Command::new(program());
        command
            // A configuration file must come first.
            .args(self.extra.iter().map(|arg| arg.replace(DIRECTORY, &self.directory.to_string_lossy())))
            .args(["--bind", "127.0.0.1", "--loglevel", "warning", "--dir"])
            .arg(&self.directory);
        if self.tls {
            command.args(["--port", "0", "--tls-port", &port, "--unixsocket"]).arg(socket);
        } else {
            command.args(["--port", &port]);
        }
        let child = command
            .envs(self.environment.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("redis-server is installed");
        self.child = Some(child);
        let started = Instant::now();
        while started.elapsed() < PATIENCE {
            if self.child.as_mut().is_none_or(|child| !matches!(child.try_wait(), Ok(None))) {
                break;
            }
            // The pid distinguishes this server from another one that took the same port first.
            let pid = self.connect().and_then(|mut connection| {
                let info: String = redis::cmd("INFO").query(&mut connection)?;
                let own = info.contains(&format!("process_id:{}\r", self.pid().unwrap_or_default()));
                Ok(own && wanted(&info))
            });
            if pid.unwrap_or(false) {
                return true;
            }
            sleep(Duration::from_millis(5));
        }
        self.stop();
        false
    }

    fn signal(&self, number: libc::c_int) {
        if let Some(child) = &self.child {
            signal(child, number);
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop();
        let _ = fs::remove_dir_all(&self.directory);
    }
}

/// The channels on which the release of a lock, a read/write lock or a semaphore at `key` is announced.
pub fn release_channels(key: &str) -> [String; 3] {
    let lock = release_channel(key);
    let others = ["redisson_rwlock", "redlock_semaphore"].map(|kind| lock.replacen("redisson_lock__channel", kind, 1));
    let [inside, semaphore] = others;
    [lock, inside, semaphore]
}

/// The channel on which the release of the lock at `key` is announced.
pub fn release_channel(key: &str) -> String {
    if key.contains('{') {
        format!("redisson_lock__channel:{key}")
    } else {
        format!("redisson_lock__channel:{{{key}}}")
    }
}
