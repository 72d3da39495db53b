//! `/live`: what open pages listen to.

use axum::extract::State;
use axum::response::Response;
use serde::Deserialize;

use super::changes::is_topic;
use super::{Changes, Client};
use crate::{Access, Caller, Problem, Query, Routes, Scope};

/// As many as a page has parts.
const MOST_TOPICS: usize = 32;

#[derive(Deserialize)]
struct Wish {
    /// Separated by commas.
    topics: String,
}

pub(crate) fn routes(changes: Changes) -> Routes {
    Routes::new().page(Access::Known, "/live", live).with_state(changes)
}

async fn live(
    State(changes): State<Changes>,
    caller: Caller,
    client: Client,
    Query(wish): Query<Wish>,
) -> Result<Response, Problem> {
    let topics: Vec<String> = wish.topics.split(',').map(str::to_owned).collect();
    if topics.len() > MOST_TOPICS || !topics.iter().all(|topic| is_topic(topic)) {
        return Err(Problem::invalid("topics", format!("1 to {MOST_TOPICS} topics, separated by commas")));
    }
    for topic in &topics {
        let service = topic.split('.').next().unwrap_or_default().to_owned();
        let scope = Scope::Read(service.into());
        if !caller.may(&scope) {
            return Err(Problem::forbidden(format!("This needs the scope {scope}.")));
        }
    }
    Ok(client.stream(changes.feed(), move |topic| topics.iter().any(|wanted| wanted == topic)))
}
