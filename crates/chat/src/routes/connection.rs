//! The endpoints of clients: WebSocket, and HTTP streaming and server-sent events with the emulation endpoint. The first command
//! of a connection carries the token.

use std::convert::Infallible;

use axum::body::{Body, Bytes};
use axum::extract::ws::WebSocketUpgrade;
use axum::extract::{Extension, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header};
use axum::response::{IntoResponse, Response};
use futures_util::stream;
use hob_net::SocketWriter;
use hob_web::{Access, Credential, Origin, Problem, Query, Routes, Stopping};
use prost::Message;
use serde::Deserialize;
use tokio::sync::mpsc;

use crate::hub::Acceptance;
use crate::proxy::{Peer, TransportName};
use crate::session::http_stream::{self, Framing};
use crate::session::protocol::{self, Format};
use crate::session::{Session, websocket};
use crate::{Chat, Config};

/// The sub-protocols of the WebSocket.
const PROTOBUF: &str = "centrifuge-protobuf";
const JSON: &str = "centrifuge-json";
/// The content type of Protobuf.
const BYTES: &str = "application/octet-stream";
/// What a request to the emulation endpoint has besides its commands, in bytes.
const MAX_ENVELOPE_BYTES: usize = 1024;

const HTTP_STREAM: &str = "/connection/http_stream";
const SSE: &str = "/connection/sse";
const EMULATION: &str = "/emulation";

pub(super) fn routes() -> Routes<Chat> {
    let mut routes = Routes::new()
        .socket(Access::Public, "/connection/websocket", connect)
        .cross_origin(Access::Public, &Method::POST, HTTP_STREAM, connect_stream)
        .cross_origin(Access::Public, &Method::GET, SSE, connect_events)
        .cross_origin(Access::Public, &Method::POST, EMULATION, emulate);
    for path in [HTTP_STREAM, SSE, EMULATION] {
        routes = routes.cross_origin(Access::Public, &Method::OPTIONS, path, preflight);
    }
    routes
}

/// How a client that cannot choose a sub-protocol chooses the encoding.
#[derive(Deserialize)]
struct Encoding {
    format: Option<String>,
    cf_protocol: Option<String>,
}

impl Encoding {
    fn format(&self) -> Format {
        let named = [&self.format, &self.cf_protocol].into_iter().flatten().any(|name| name == "protobuf");
        if named { Format::Protobuf } else { Format::Json }
    }
}

/// The WebSocket endpoint for Centrifugo clients.
async fn connect(
    State(chat): State<Chat>,
    origin: Origin,
    credential: Credential,
    Query(encoding): Query<Encoding>,
    writer: Option<Extension<SocketWriter>>,
    headers: HeaderMap,
    upgrade: WebSocketUpgrade,
) -> Result<Response, Problem> {
    let config = chat.config();
    check_origin(&config, &origin)?;
    check_capacity(&chat, &config)?;
    let max = config.max_frame_bytes as usize;
    let writer = writer.map(|Extension(writer)| writer);
    let upgrade = upgrade.protocols([PROTOBUF, JSON]);
    let is_protobuf = upgrade.selected_protocol().is_some_and(|protocol| protocol == PROTOBUF);
    let format = if is_protobuf { Format::Protobuf } else { encoding.format() };
    let peer = peer(&config, TransportName::Websocket, &headers);
    let session = Session::new(chat, format, credential, writer, peer);
    Ok(upgrade
        // Small, because each idle connection has one. It grows with the frame.
        .read_buffer_size(1024)
        .write_buffer_size(4 * 1024)
        .max_write_buffer_size(1024 * 1024)
        .max_message_size(max)
        .max_frame_size(max)
        // A separate task, because the one that makes the upgrade needs more memory, and would keep it.
        .on_upgrade(async move |socket| drop(tokio::spawn(websocket::serve(session, socket)))))
}

/// HTTP streaming: the body has the first commands, the response is the stream of replies and pushes.
async fn connect_stream(
    State(chat): State<Chat>,
    origin: Origin,
    credential: Credential,
    stopping: Stopping,
    headers: HeaderMap,
    body: Bytes,
) -> Result<Response, Problem> {
    let allow = allow_origin(&chat.config(), &origin)?;
    let format = format_of(&headers);
    let peer = peer(&chat.config(), TransportName::HttpStream, &headers);
    let session = Session::new(chat.clone(), format, credential, None, peer);
    let chunks = open_stream(&chat, session, Framing::Stream, body, stopping)?;
    let content_type = if format == Format::Protobuf { BYTES } else { "application/json" };
    Ok(streamed(content_type, allow, chunks))
}

#[derive(Deserialize)]
struct FirstCommands {
    /// As JSON.
    #[serde(default)]
    cf_connect: String,
}

/// Server-sent events, in JSON. A browser cannot send a body with the request, so the first commands are in the query.
async fn connect_events(
    State(chat): State<Chat>,
    origin: Origin,
    credential: Credential,
    stopping: Stopping,
    Query(FirstCommands { cf_connect }): Query<FirstCommands>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let allow = allow_origin(&chat.config(), &origin)?;
    let peer = peer(&chat.config(), TransportName::Sse, &headers);
    let session = Session::new(chat.clone(), Format::Json, credential, None, peer);
    let chunks = open_stream(&chat, session, Framing::Events, cf_connect.into(), stopping)?;
    Ok(streamed("text/event-stream", allow, chunks))
}

fn open_stream(
    chat: &Chat,
    session: Box<Session>,
    framing: Framing,
    first: Bytes,
    stopping: Stopping,
) -> Result<mpsc::Receiver<Bytes>, Problem> {
    let config = chat.config();
    check_capacity(chat, &config)?;
    check_size(&config, first.len())?;
    let emulated = chat.inner.emulation.open();
    Ok(http_stream::serve(session.with_emulation(&emulated), framing, first, emulated, stopping))
}

/// How a client is connected, with the headers for the application.
fn peer(config: &Config, transport: TransportName, headers: &HeaderMap) -> Peer {
    let headers = config.proxy.as_ref().map(|proxy| proxy.passed_on(headers)).unwrap_or_default();
    Peer { transport, headers }
}

/// Commands for a session with a stream, on any node.
#[derive(Clone, PartialEq, Message, Deserialize)]
#[serde(default)]
struct EmulationRequest {
    #[prost(string, tag = "1")]
    node: String,
    #[prost(string, tag = "2")]
    session: String,
    /// In JSON, a text with commands.
    #[prost(bytes = "vec", tag = "3")]
    #[serde(deserialize_with = "text")]
    data: Vec<u8>,
}

fn text<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Vec<u8>, D::Error> {
    String::deserialize(deserializer).map(String::into_bytes)
}

async fn emulate(
    State(chat): State<Chat>,
    origin: Origin,
    headers: HeaderMap,
    body: Bytes,
) -> Result<Response, Problem> {
    let config = chat.config();
    let allow = allow_origin(&config, &origin)?;
    let format = format_of(&headers);
    // Quotes in a JSON text take twice the space.
    check_size(&config, body.len().saturating_sub(MAX_ENVELOPE_BYTES) / 2)?;
    let request = match format {
        Format::Json => protocol::parse::<EmulationRequest>(&body),
        Format::Protobuf => EmulationRequest::decode(body).map_err(|error| error.to_string()),
    };
    let EmulationRequest { node, session, data } = request.map_err(Problem::bad_request)?;
    check_size(&config, data.len())?;
    let status = match chat.inner.emulation.send(&node, &session, data.into()).await? {
        Acceptance::Accepted => StatusCode::NO_CONTENT,
        Acceptance::Unknown => return Err(Problem::not_found("session")),
        Acceptance::Busy => {
            let detail = "Too many requests of this session are waiting.";
            return Err(Problem::new(StatusCode::TOO_MANY_REQUESTS, detail));
        }
        Acceptance::Unreachable => {
            return Err(Problem::unavailable("The node with this session does not answer."));
        }
    };
    Ok((allow, status).into_response())
}

/// Answers browsers that ask what a page of another site may send.
async fn preflight(State(chat): State<Chat>, origin: Origin) -> Result<Response, Problem> {
    let allow = allow_origin(&chat.config(), &origin)?;
    let headers = [
        (header::ACCESS_CONTROL_ALLOW_METHODS, "GET, POST"),
        (header::ACCESS_CONTROL_ALLOW_HEADERS, "content-type"),
        (header::ACCESS_CONTROL_MAX_AGE, "3600"),
    ];
    Ok((allow, headers, StatusCode::NO_CONTENT).into_response())
}

/// A response that does not end, and that proxies must not collect.
fn streamed(content_type: &'static str, allow: HeaderMap, chunks: mpsc::Receiver<Bytes>) -> Response {
    let headers = [
        (header::CONTENT_TYPE, content_type),
        (header::CACHE_CONTROL, "no-store"),
        (HeaderName::from_static("x-accel-buffering"), "no"),
    ];
    let next = async |mut chunks: mpsc::Receiver<Bytes>| {
        let chunk = chunks.recv().await?;
        Some((Ok::<_, Infallible>(chunk), chunks))
    };
    (allow, headers, Body::from_stream(stream::unfold(chunks, next))).into_response()
}

fn format_of(headers: &HeaderMap) -> Format {
    let is_protobuf = headers.get(header::CONTENT_TYPE).is_some_and(|content_type| content_type == BYTES);
    if is_protobuf { Format::Protobuf } else { Format::Json }
}

/// Pages of other origins may connect if the configuration names the origin.
fn check_origin(config: &Config, origin: &Origin) -> Result<(), Problem> {
    match origin {
        Origin::Elsewhere(site)
            if !config.origins.iter().any(|known| known.trim_end_matches('/').eq_ignore_ascii_case(site)) =>
        {
            Err(Problem::forbidden("Pages of this origin may not connect. Add it to [chat] origins."))
        }
        _ => Ok(()),
    }
}

/// The same, and the headers with which a browser gives the response to such a page.
fn allow_origin(config: &Config, origin: &Origin) -> Result<HeaderMap, Problem> {
    check_origin(config, origin)?;
    let mut headers = HeaderMap::from_iter([(header::VARY, HeaderValue::from_static("origin"))]);
    if let Origin::Elsewhere(site) = origin
        && let Ok(site) = HeaderValue::from_str(site)
    {
        headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, site);
    }
    Ok(headers)
}

fn check_capacity(chat: &Chat, config: &Config) -> Result<(), Problem> {
    if chat.inner.hub.load().connections >= u64::from(config.max_connections) {
        return Err(Problem::unavailable("This node has reached [chat] max_connections."));
    }
    Ok(())
}

fn check_size(config: &Config, bytes: usize) -> Result<(), Problem> {
    let max = config.max_frame_bytes as usize;
    if bytes <= max {
        return Ok(());
    }
    Err(Problem::new(StatusCode::PAYLOAD_TOO_LARGE, format!("At most {max} bytes of commands.")))
}
