//! A process that acquires locks and acts under them until its standard input ends: `worker ORDERS`, in JSON. See
//! `redlock_tests::worker`.

use redlock_tests::worker::{self, Failure};

fn main() -> Result<(), Failure> {
    let orders = std::env::args().nth(1).ok_or("worker ORDERS")?;
    worker::run(serde_json::from_str(&orders)?)
}
