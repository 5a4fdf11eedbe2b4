//! A program for the tests of how programs are packed. It acquires a lock in memory, prints its token, and exits with
//! the code in its first argument.

use redlock::{Client, Config, LockError, LockOptions};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), LockError> {
    let lease = Client::new(Config::new(["memory://"]))?.lock("toy", LockOptions::default())?.acquire().await?;
    println!("{}", lease.token());
    lease.release().await?;
    let code = std::env::args().nth(1).and_then(|code| code.parse().ok());
    std::process::exit(code.unwrap_or(0));
}
