//! Sleeps that are shorter than a tick of the runtime's timers.
#![allow(unsafe_code, reason = "a registered timer")]

use std::time::Duration;

use tokio::time::sleep;

#[cfg(feature = "simulation")]
use super::runtime::test;

/// Sleeps for a time below a millisecond; the runtime's timers would take one or two.
pub(crate) async fn brief(time: Duration) {
    #[cfg(feature = "simulation")]
    if test::is_replaced() {
        return sleep(time).await;
    }
    #[cfg(target_os = "linux")]
    if let Ok(timer) = timer(time) {
        // Readable when the time is over, or if the timer is broken; then the sleep ends early.
        let _ = timer.readable().await.map(|mut ready| ready.clear_ready());
        return;
    }
    sleep(time).await;
}

#[cfg(target_os = "linux")]
fn timer(time: Duration) -> std::io::Result<tokio::io::unix::AsyncFd<std::os::fd::OwnedFd>> {
    use rustix::time::{
        Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create, timerfd_settime,
    };
    use tokio::io::{Interest, unix::AsyncFd};
    let timer = timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC)?;
    // Zero would disarm the timer.
    let nanoseconds = time.subsec_nanos().max(1);
    let once = Itimerspec {
        it_interval: Timespec { tv_sec: 0, tv_nsec: 0 },
        it_value: Timespec { tv_sec: time.as_secs().cast_signed(), tv_nsec: nanoseconds.into() },
    };
    timerfd_settime(&timer, TimerfdTimerFlags::empty(), &once)?;
    // SAFETY: the timer stays open for as long as it is registered, since it is owned.
    Ok(unsafe { AsyncFd::register_with_interest(timer, Interest::READABLE) }?)
}
