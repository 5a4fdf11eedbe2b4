//! `/api/stream`: a snapshot every `--every`, as server-sent events, and a comment in longer pauses.

use std::{convert::Infallible, sync::Arc, time::Duration};

use axum::{
    body::{Body, Bytes},
    extract::State,
    http::{StatusCode, header},
    response::{IntoResponse, Response},
};
use futures_util::{FutureExt, stream::unfold};
use tokio::time::{Instant, sleep_until, timeout};

use super::{guard::Refusal, viewer::Viewer};

/// The longest time without a byte: proxies close connections that are silent.
const SILENCE: Duration = Duration::from_secs(15);
/// An event that a browser ignores.
const COMMENT: Bytes = Bytes::from_static(b":\n\n");

pub(super) async fn stream(State(viewer): State<Arc<Viewer>>) -> Result<Response, Refusal> {
    let Ok(permit) = viewer.looks.streams.clone().try_acquire_owned() else {
        return Err(Refusal { status: StatusCode::SERVICE_UNAVAILABLE, why: "Too many pages are open." });
    };
    let events = unfold((viewer, Instant::now(), None), move |(viewer, due, begun)| {
        // The permit lives as long as the stream.
        let _ = &permit;
        async move {
            let silent = Instant::now() + SILENCE;
            if silent < due {
                sleep_until(silent).await;
                return Some((Ok::<_, Infallible>(COMMENT), (viewer, due, None)));
            }
            sleep_until(due).await;
            let mut look = begun.unwrap_or_else(|| {
                let viewer = viewer.clone();
                async move { viewer.looks.latest(&viewer).await }.boxed()
            });
            let Ok(looked) = timeout(SILENCE, &mut look).await else {
                return Some((Ok(COMMENT), (viewer, due, Some(look))));
            };
            // The client was closed, so this process ends.
            let event = [&b"data: "[..], &looked.ok()?.json, b"\n\n"].concat();
            let due = Instant::now() + viewer.looks.every;
            Some((Ok(Bytes::from(event)), (viewer, due, None)))
        }
    });
    Ok(([(header::CONTENT_TYPE, "text/event-stream")], Body::from_stream(events)).into_response())
}
