//! What drop-in shims of other libraries need, on a real server: locks whose value the caller chose, locks without a ttl,
//! and what is done with a value that this process does not hold by a lease.
