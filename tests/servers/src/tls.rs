//! Certificates for one test, made with `openssl`: an authority, certificates of a server and of a client that it
//! signed, and an authority that no one trusts.

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::{Command, id},
    sync::atomic::{AtomicU64, Ordering::Relaxed},
};

const KEY: &str = "-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes";

/// The files. They are removed when this is dropped.
#[derive(Debug)]
pub struct Certificates {
    directory: PathBuf,
}

impl Certificates {
    /// Makes them, for a server with the names 127.0.0.1 and `localhost`.
    pub fn make() -> Self {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let directory = env::temp_dir().join(format!("redlock-tls-{}-{}", id(), NUMBER.fetch_add(1, Relaxed)));
        fs::create_dir_all(&directory).expect("a directory for certificates");
        for name in ["ca", "other"] {
            openssl(
                &directory,
                &format!("req -x509 {KEY} -days 2 -subj /CN={name} -keyout {name}.key -out {name}.crt"),
            );
        }
        let local = "DNS:localhost,IP:127.0.0.1";
        for (name, called) in [("server", local), ("client", local), ("elsewhere", "DNS:elsewhere.example")] {
            fs::write(directory.join("names"), format!("subjectAltName={called}\n")).expect("a file");
            openssl(&directory, &format!("req {KEY} -subj /CN={name} -keyout {name}.key -out {name}.csr"));
            openssl(
                &directory,
                &format!(
                    "x509 -req -in {name}.csr -CA ca.crt -CAkey ca.key -CAcreateserial -days 2 -extfile names -out \
                     {name}.crt"
                ),
            );
        }
        Self { directory }
    }

    /// The path of `ca.crt`, `other.crt`, or of the `.crt` or `.key` of `server`, `client` or `elsewhere`, a server
    /// with another name.
    pub fn path(&self, file: &str) -> String {
        self.directory.join(file).to_str().expect("a path that is text").to_owned()
    }

    /// The options of a server with one of the certificates, as names and values.
    pub fn options(&self, name: &str) -> [(&'static str, String); 3] {
        [
            ("tls-cert-file", self.path(&format!("{name}.crt"))),
            ("tls-key-file", self.path(&format!("{name}.key"))),
            ("tls-ca-cert-file", self.path("ca.crt")),
        ]
    }

    /// The same options as command-line arguments.
    pub fn arguments(&self, name: &str) -> Vec<String> {
        self.options(name).into_iter().flat_map(|(name, value)| [format!("--{name}"), value]).collect()
    }
}

impl Drop for Certificates {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.directory);
    }
}

fn openssl(directory: &Path, arguments: &str) {
    let output = Command::new("openssl").current_dir(directory).args(arguments.split_whitespace()).output();
    let output = output.expect("openssl is installed");
    assert!(output.status.success(), "openssl {arguments}: {}", String::from_utf8_lossy(&output.stderr));
}
