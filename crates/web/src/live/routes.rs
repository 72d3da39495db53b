//! `/live`: the event stream of open pages.

use axum::extract::State;
use axum::response::Response;
use serde::Deserialize;

use super::changes::is_valid_topic;
use super::{Changes, Client};
use crate::{Access, Caller, Problem, Query, Routes, Scope};

/// The maximum number of topics of a page.
const MAX_TOPICS: usize = 32;

#[derive(Deserialize)]
struct LiveQuery {
    /// Separated by commas.
    topics: String,
}

pub(crate) fn routes(changes: Changes) -> Routes {
    Routes::new().page(Access::Authenticated, "/live", live).with_state(changes)
}

async fn live(
    State(changes): State<Changes>,
    caller: Caller,
    client: Client,
    Query(query): Query<LiveQuery>,
) -> Result<Response, Problem> {
    let topics: Vec<String> = query.topics.split(',').map(str::to_owned).collect();
    if topics.len() > MAX_TOPICS || !topics.iter().all(|topic| is_valid_topic(topic)) {
        return Err(Problem::invalid(
            "topics",
            format!("must be 1 to {MAX_TOPICS} topics, separated by commas"),
        ));
    }
    // Ignores topics of services that the caller may not read.
    let may_know = |topic: &String| {
        let service = topic.split('.').next().unwrap_or_default().to_owned();
        caller.may(&Scope::Read(service.into()))
    };
    let topics: Vec<String> = topics.into_iter().filter(may_know).collect();
    Ok(client.stream(changes.feed(), move |topic| topics.iter().any(|wanted| wanted == topic)))
}
