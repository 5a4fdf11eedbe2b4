//! The paths, and the headers that all answers have.

use std::{fmt::Display, sync::Arc};

use axum::{
    Router,
    extract::{Request, State},
    http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header},
    middleware::{Next, from_fn_with_state},
    response::{Html, IntoResponse, Response},
    routing::{get, post},
};

use super::{
    guard::{Refusal, check_own},
    metrics,
    page::{PAGE, POLICY},
    release,
    stream::stream,
    viewer::Viewer,
};

/// The headers of all answers but the policy.
const HEADERS: [(HeaderName, &str); 5] = [
    (header::CACHE_CONTROL, "no-store"),
    (header::REFERRER_POLICY, "no-referrer"),
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (header::X_FRAME_OPTIONS, "DENY"),
    (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
];

pub(super) fn all(viewer: Arc<Viewer>) -> Router {
    let data = Router::new()
        .route("/api/snapshot", get(snapshot))
        .route("/api/stream", get(stream))
        .route("/api/scan", get(scan))
        .route("/api/release", post(release::release))
        .route("/metrics", get(metrics::metrics))
        .route_layer(from_fn_with_state(viewer.clone(), with_token));
    // These two tell nothing of the servers.
    Router::new()
        .route("/", get(async || Html(PAGE)))
        .route("/healthz", get(async || "ok\n"))
        .merge(data)
        .layer(from_fn_with_state(viewer.clone(), guarded))
        .with_state(viewer)
}

/// Refuses what no request may do, and adds the headers.
async fn guarded(State(viewer): State<Arc<Viewer>>, request: Request, next: Next) -> Response {
    let mut response = match viewer.guard.check(request.uri(), request.headers()) {
        Ok(()) => next.run(request).await,
        Err(refusal) => refusal.into_response(),
    };
    let headers = response.headers_mut();
    headers.extend(HEADERS.map(|(name, value)| (name, HeaderValue::from_static(value))));
    if let Ok(policy) = HeaderValue::from_str(&POLICY) {
        headers.insert(header::CONTENT_SECURITY_POLICY, policy);
    }
    response
}

async fn with_token(State(viewer): State<Arc<Viewer>>, request: Request, next: Next) -> Response {
    match viewer.guard.check_token(request.headers()) {
        Ok(()) => next.run(request).await,
        Err(refusal) => refusal.into_response(),
    }
}

async fn snapshot(State(viewer): State<Arc<Viewer>>) -> Response {
    match viewer.looks.latest(&viewer).await {
        Ok(look) => ([(header::CONTENT_TYPE, "application/json")], look.json.clone()).into_response(),
        Err(error) => failed(StatusCode::SERVICE_UNAVAILABLE, &error),
    }
}

async fn scan(State(viewer): State<Arc<Viewer>>, headers: HeaderMap) -> Result<Response, Refusal> {
    check_own(&headers)?;
    Ok(match viewer.looks.scan().await {
        Ok(()) => StatusCode::NO_CONTENT.into_response(),
        Err(error) => failed(StatusCode::SERVICE_UNAVAILABLE, &error),
    })
}

/// The answer if the servers fail.
pub(super) fn failed(status: StatusCode, error: &impl Display) -> Response {
    (status, format!("{error}\n")).into_response()
}
