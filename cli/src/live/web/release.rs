//! `/api/release`: ends a tenure by force, if the viewer names its token and the lock.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use axum::{
    body::{Body, to_bytes},
    extract::{ConnectInfo, State},
    http::{HeaderMap, StatusCode},
    response::{IntoResponse, Response},
};
use redlock::LockError;
use serde_json::{Value, json};
use tokio::{spawn, time::timeout};

use super::{
    guard::{Refusal, check_change},
    routes::failed,
    viewer::Viewer,
};
use crate::table::visible;

/// The longest content of a request: a name has 1024 bytes, and may be escaped.
const MOST_CONTENT: usize = 16 * 1024;
/// How long a request may take to arrive.
const CONTENT_LIMIT: Duration = Duration::from_secs(10);

/// A release that a viewer asks for.
struct Wanted {
    name: String,
    token: u64,
}

impl Wanted {
    /// Reads `{"name": …, "token": "…", "confirm": …}`. The viewer types the name a second time.
    fn read(content: &[u8]) -> Result<Self, Refusal> {
        let refused = |why| Refusal { status: StatusCode::BAD_REQUEST, why };
        let object: Value = serde_json::from_slice(content).map_err(|_| refused("The content is no JSON."))?;
        let text = |member: &str| object[member].as_str().map(str::to_owned);
        let (Some(name), Some(token), Some(confirm)) = (text("name"), text("token"), text("confirm")) else {
            return Err(refused("The content must have name, token and confirm, each a text."));
        };
        if name != confirm {
            return Err(refused("confirm is not the name of the lock. Nothing was released."));
        }
        let token = token.parse().ok().filter(|token| *token > 0);
        Ok(Self { name, token: token.ok_or_else(|| refused("token is no positive number."))? })
    }
}

pub(super) async fn release(
    State(viewer): State<Arc<Viewer>>,
    ConnectInfo(peer): ConnectInfo<SocketAddr>,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Refusal> {
    if !viewer.allow_release {
        let why = "This page is read-only: redlock web was started without --allow-release.";
        return Err(Refusal { status: StatusCode::FORBIDDEN, why });
    }
    check_change(&headers)?;
    let content = match timeout(CONTENT_LIMIT, to_bytes(body, MOST_CONTENT)).await {
        Ok(Ok(content)) => content,
        Ok(Err(_)) => return Err(Refusal { status: StatusCode::PAYLOAD_TOO_LARGE, why: "The content is too long." }),
        Err(_) => return Err(Refusal { status: StatusCode::REQUEST_TIMEOUT, why: "The content did not arrive." }),
    };
    let Wanted { name, token } = Wanted::read(&content)?;
    let user = viewer.user(&headers);
    let releasing = async move {
        let released = viewer.looks.client().force_release_token(&name, token).await;
        let outcome = match &released {
            Ok(true) => "released".to_owned(),
            Ok(false) => "not released: the token does not hold it".to_owned(),
            Err(error) => format!("not released: {error}"),
        };
        viewer.talk.audit(&format!("{name:?} with token {token}, for {user} from {peer}: {outcome}"));
        viewer.looks.forget().await;
        (name, released)
    };
    // In a task of its own: a viewer that ends its connection must not keep the release off the record.
    let Ok((name, released)) = spawn(releasing).await else {
        return Err(Refusal { status: StatusCode::INTERNAL_SERVER_ERROR, why: "The release failed." });
    };
    Ok(match released {
        Ok(released) => json_answer(&json!({ "name": name, "released": released })),
        Err(error @ LockError::Conflict { .. }) => failed(StatusCode::CONFLICT, &error),
        Err(error @ LockError::Invalid { .. }) => failed(StatusCode::BAD_REQUEST, &error),
        Err(error) => failed(StatusCode::SERVICE_UNAVAILABLE, &error),
    })
}

fn json_answer(object: &Value) -> Response {
    ([(axum::http::header::CONTENT_TYPE, "application/json")], object.to_string()).into_response()
}

impl Viewer {
    /// The user whom the proxy names.
    fn user(&self, headers: &HeaderMap) -> String {
        let named = self.read_header.as_ref().and_then(|header| headers.get(header));
        named.map_or_else(|| "an unnamed user".to_owned(), |user| visible(&String::from_utf8_lossy(user.as_bytes())))
    }
}
