//! The names of this machine and of this program, by which people recognise a process.

use std::path::Path;

/// The name of this machine; empty if the system does not tell it.
#[cfg(unix)]
#[allow(unsafe_code, reason = "std does not tell the host name")]
pub(crate) fn host() -> String {
    // POSIX allows 255 bytes. The last one stays zero, since a cut name may lack its end.
    let mut name = [0_u8; 256];
    // SAFETY: the buffer is writable for the whole length that the call gets.
    let failed = unsafe { libc::gethostname(name.as_mut_ptr().cast(), name.len() - 1) } != 0;
    let name = name.split(|byte| *byte == 0).next().filter(|_| !failed).unwrap_or_default();
    String::from_utf8_lossy(name).into_owned()
}

/// The name of this machine; empty if the system does not tell it.
#[cfg(not(unix))]
pub(crate) fn host() -> String {
    std::env::var("COMPUTERNAME").unwrap_or_default()
}

/// The name of this program: that of the script or class, if an interpreter runs one.
pub(crate) fn program() -> String {
    let given = arguments();
    let started = given.first().is_some_and(|first| !first.is_empty());
    if started { program_of(&given) } else { std::env::current_exe().map(|path| file_name(&path)).unwrap_or_default() }
}

/// The arguments with which this process was started.
fn arguments() -> Vec<String> {
    let given: Vec<String> = std::env::args_os().map(|argument| argument.to_string_lossy().into_owned()).collect();
    if !given.is_empty() {
        return given;
    }
    // musl does not tell them to a shared library, such as one that an interpreter loads. Linux ends each with a zero.
    let line = std::fs::read("/proc/self/cmdline").unwrap_or_default();
    let line = line.strip_suffix(&[0]).unwrap_or(&line);
    line.split(|byte| *byte == 0).map(|argument| String::from_utf8_lossy(argument).into_owned()).collect()
}

/// An interpreter, and how its arguments name what it runs.
struct Interpreter {
    /// The beginnings of its file name.
    names: &'static [&'static str],
    /// The options that precede the name of a module.
    module: &'static [&'static str],
    /// The options whose value is the next argument.
    with_value: &'static [&'static str],
    /// The options that are followed by code, which is no name and may hold a secret.
    code: &'static [&'static str],
}

/// The subcommands of Bun and Deno that run what follows.
const SUBCOMMANDS: [&str; 2] = ["run", "test"];

const INTERPRETERS: [Interpreter; 3] = [
    Interpreter { names: &["python", "pypy"], module: &["-m"], with_value: &["-W", "-X"], code: &["-c"] },
    Interpreter {
        names: &["node", "bun", "deno"],
        module: &[],
        with_value: &["-r", "--require", "--import", "--loader", "--experimental-loader", "-C", "--conditions"],
        code: &["-e", "--eval", "-p", "--print", "-i"],
    },
    Interpreter {
        names: &["java"],
        module: &["-m", "--module"],
        with_value: &[
            "-cp",
            "-classpath",
            "--class-path",
            "-p",
            "--module-path",
            "--add-modules",
            "--add-opens",
            "--add-exports",
            "--add-reads",
        ],
        code: &[],
    },
];

/// The name of the program with these arguments, of which the first is its file.
fn program_of(given: &[String]) -> String {
    let own = given.first().map(|file| file_name(Path::new(file))).unwrap_or_default();
    let interpreter = INTERPRETERS.iter().find(|known| known.names.iter().any(|name| own.starts_with(name)));
    interpreter.and_then(|interpreter| interpreter.runs(&given[1..])).unwrap_or(own)
}

impl Interpreter {
    /// The name of what it runs; `None` if its arguments name nothing.
    fn runs(&self, given: &[String]) -> Option<String> {
        let mut rest = given.iter().map(String::as_str);
        while let Some(argument) = rest.next() {
            if self.code.contains(&argument) {
                return None;
            }
            if self.module.contains(&argument) {
                return rest.next().map(str::to_owned);
            }
            if self.with_value.contains(&argument) {
                rest.next();
            } else if !argument.starts_with('-') && !SUBCOMMANDS.contains(&argument) {
                return Some(file_name(Path::new(argument)));
            }
        }
        None
    }
}

fn file_name(path: &Path) -> String {
    path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_is_named_by_what_it_runs() {
        for (line, name) in [
            ("/usr/bin/billing --port 80", "billing"),
            ("/usr/bin/python3.12 -X dev /srv/shop/jobs.py --password secret", "jobs.py"),
            ("python3 -m celery -A shop worker", "celery"),
            ("/usr/bin/python3 /usr/local/bin/gunicorn shop:app", "gunicorn"),
            ("python3 -c print(1)", "python3"),
            ("python3", "python3"),
            ("node --require ./tracing.js --enable-source-maps dist/server.mjs", "server.mjs"),
            ("node -e secret()", "node"),
            ("/root/.bun/bin/bun run jobs.ts", "jobs.ts"),
            ("deno test --allow-all jobs.test.ts", "jobs.test.ts"),
            ("/usr/lib/jvm/bin/java -Xmx1g -cp lib/a.jar:lib/b.jar shop.Main now", "shop.Main"),
            ("java -jar /srv/billing.jar", "billing.jar"),
        ] {
            let given: Vec<String> = line.split(' ').map(str::to_owned).collect();
            assert_eq!(program_of(&given), name, "{line}");
        }
    }

    #[test]
    fn this_process_has_names() {
        assert!(!host().is_empty());
        // The name of the test's executable.
        assert!(program().starts_with("redlock"), "{}", program());
    }
}
