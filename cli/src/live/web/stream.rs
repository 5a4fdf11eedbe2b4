//! `/api/stream`: a snapshot every `--every`, as server-sent events, and a comment in longer pauses.

use std::{convert::Infallible, sync::Arc, time::Duration};

use axum::{
    body::{Body, Bytes},
    extract::State,
    http::{StatusCode, header},
    response::{IntoResponse, Response},
};
use futures_util::stream::unfold;
use tokio::time::{Instant, sleep_until};

use super::{guard::Refusal, viewer::Viewer};

/// The longest time without a byte: proxies close connections that are silent.
const SILENCE: Duration = Duration::from_secs(15);

pub(super) async fn stream(State(viewer): State<Arc<Viewer>>) -> Result<Response, Refusal> {
    let Ok(permit) = viewer.looks.streams.clone().try_acquire_owned() else {
        return Err(Refusal { status: StatusCode::SERVICE_UNAVAILABLE, why: "Too many pages are open." });
    };
    let events = unfold((viewer, Instant::now()), move |(viewer, due)| {
        // The permit lives as long as the stream.
        let _ = &permit;
        async move {
            let silent = Instant::now() + SILENCE;
            if silent < due {
                sleep_until(silent).await;
                return Some((Ok::<_, Infallible>(Bytes::from_static(b":\n\n")), (viewer, due)));
            }
            sleep_until(due).await;
            // The client was closed, so this process ends.
            let look = viewer.looks.latest(&viewer).await.ok()?;
            let event = [&b"data: "[..], &look.json, b"\n\n"].concat();
            let due = Instant::now() + viewer.looks.every;
            Some((Ok(Bytes::from(event)), (viewer, due)))
        }
    });
    Ok(([(header::CONTENT_TYPE, "text/event-stream")], Body::from_stream(events)).into_response())
}
