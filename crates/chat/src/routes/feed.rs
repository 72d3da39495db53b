//! The stream of new messages from the outbox, at least once, as server-sent events.

use std::convert::Infallible;
use std::time::Duration;

use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use futures_util::Stream;
use futures_util::stream::{self, StreamExt as _};
use hob_database::outbox::{self, Replay};
use hob_web::{Problem, Query, Routes};
use serde::Deserialize;
use utoipa::IntoParams;
use utoipa_axum::routes;

use super::READ;
use crate::conversation::outbox::MESSAGE_CREATED;
use crate::{Chat, Error};

/// How often the database is polled.
const POLL_INTERVAL: Duration = Duration::from_millis(250);
const BATCH: u16 = 100;

pub(super) fn routes() -> Routes<Chat> {
    Routes::new().api(READ, routes!(events))
}

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
pub(crate) struct EventsQuery {
    /// The number of the last event seen. 0 for all that are stored. A `Last-Event-ID` header takes precedence.
    #[param(maximum = 9_223_372_036_854_775_807i64)]
    after: Option<u64>,
}

/// Stream new messages, at least once, after an event. Each is an `event: message.created` with the payload of the channel
/// `events:message.created` and the number as id. `event: missed` means that older events are no longer stored.
#[utoipa::path(get, path = "/api/v1/chat/events", params(EventsQuery), tag = "chat",
    responses((status = 200, content_type = "text/event-stream", body = String)))]
async fn events(
    State(chat): State<Chat>,
    Query(query): Query<EventsQuery>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let resumed = headers.get("last-event-id").and_then(|value| value.to_str().ok()?.parse().ok());
    let after = resumed.or(query.after).unwrap_or(0);
    if i64::try_from(after).is_err() {
        return Err(Problem::invalid("after", "not a valid event number"));
    }
    let stop = chat.inner.tasks.stop_token();
    let stream = stream_after(chat, after).take_until(stop.cancelled_owned());
    Ok(Sse::new(stream).keep_alive(KeepAlive::default()).into_response())
}

/// Reads the next batch only when the client has read the previous one.
fn stream_after(chat: Chat, after: u64) -> impl Stream<Item = Result<Event, Infallible>> {
    stream::unfold((chat, after), |(chat, after)| async move {
        loop {
            match next(&chat, after).await {
                Ok((events, last)) if !events.is_empty() => {
                    return Some((stream::iter(events), (chat, last)));
                }
                Ok(_) => {}
                Err(error) => tracing::debug!(%error, "failed to read the event stream, retrying"),
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    })
    .flatten()
    .map(Ok)
}

async fn next(chat: &Chat, after: u64) -> Result<(Vec<Event>, u64), Error> {
    match outbox::after(&chat.inner.database, MESSAGE_CREATED, after, BATCH).await? {
        Replay::Events(events) => {
            let last = events.last().map_or(after, |event| event.number);
            let mut sent = Vec::with_capacity(events.len());
            for event in &events {
                let data = chat.message_created_json(event).await?;
                sent.push(Event::default().event("message.created").id(event.number.to_string()).data(data));
            }
            Ok((sent, last))
        }
        Replay::Missed { oldest, newest } if oldest > after + 1 => {
            let data = format!(r#"{{"oldest":{oldest},"newest":{newest}}}"#);
            let last = oldest.saturating_sub(1);
            Ok((vec![Event::default().event("missed").id(last.to_string()).data(data)], last))
        }
        // The numbers are not assigned yet.
        Replay::Missed { .. } => Ok((Vec::new(), after)),
    }
}
