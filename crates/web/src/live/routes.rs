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
    // A page may show parts that not everybody may know of: whoever may not never hears of them.
    let may_know = |topic: &String| {
        let service = topic.split('.').next().unwrap_or_default().to_owned();
        caller.may(&Scope::Read(service.into()))
    };
    let topics: Vec<String> = topics.into_iter().filter(may_know).collect();
    Ok(client.stream(changes.feed(), move |topic| topics.iter().any(|wanted| wanted == topic)))
}
