//! Searches monitors, rules, plans, runs and key families, as far as the caller may read them.

use askama::Template;
use axum::extract::State;
use hob_web::components::{Empty, Field};
use hob_web::{Console, MAX_SEARCH_HITS, Page, Problem, Query, SearchHit};
use serde::Deserialize;

use super::audit::BackgroundAudit;
use super::keys::href;
use crate::services::Services;

const MAX_QUERY_CHARS: usize = 128;

#[derive(Clone)]
pub(super) struct SearchState {
    pub(super) services: Services,
    pub(super) audit: BackgroundAudit,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct SearchQuery {
    q: String,
}

#[derive(Template)]
#[template(path = "search.html")]
struct SearchPage {
    field: Field,
    query: String,
    hits: Vec<SearchHit>,
    /// Services that could not be searched.
    failed: Vec<&'static str>,
}

impl SearchPage {
    fn empty(&self) -> Empty {
        if self.query.is_empty() {
            return Empty::new("Search everything", "Enter a part of a name, an id or an address.");
        }
        let advice = "Names, ids and addresses are searched. Try a shorter part of the name.";
        Empty::new(format!("Nothing contains “{}”", self.query), advice)
    }
}

pub(super) async fn page(
    console: Console,
    State(state): State<SearchState>,
    Query(search): Query<SearchQuery>,
) -> Result<Page, Problem> {
    let query: String = search.q.trim().chars().take(MAX_QUERY_CHARS).collect();
    let lower = query.to_lowercase();
    let (mut hits, mut failed) = (Vec::new(), Vec::new());
    if !lower.is_empty() {
        for service in state.services.all() {
            if !console.may_open(service.href()) {
                continue;
            }
            match service.search(&lower).await {
                Ok(found) => hits.extend(found),
                Err(error) => {
                    tracing::warn!(%error, service = service.name(), "failed to search a service");
                    failed.push(service.title());
                }
            }
        }
        if console.may_open("/keys") {
            hits.extend(families(&state.audit, &lower));
        }
    }
    let field = Field::search("q", "Search").value(&query).max_length(MAX_QUERY_CHARS);
    console.page("Search", &SearchPage { field, query, hits, failed })
}

/// Key families whose name or pattern contains the query.
fn families(audit: &BackgroundAudit, query: &str) -> Vec<SearchHit> {
    let catalog = audit.catalog();
    let all = catalog.families().map(|(id, family)| (catalog.schema(id), family));
    let found = all.filter(|(schema, family)| {
        let name = format!("{}.{}", schema.name, family.name);
        SearchHit::matches(query, &[&name, &family.pattern.text])
    });
    let hit = found.take(MAX_SEARCH_HITS).map(|(schema, family)| SearchHit {
        kind: "key family",
        title: format!("{}.{}", schema.name, family.name),
        detail: family.pattern.text.clone(),
        href: href(schema, family),
    });
    hit.collect()
}
