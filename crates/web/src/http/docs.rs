//! The OpenAPI document at `/api/openapi.json`, and its operations as pages at `/api/docs`.

mod document;
mod example;
mod operation;
mod schema;

use std::collections::BTreeMap;
use std::sync::Arc;

use askama::Template;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use utoipa::openapi::OpenApi;

use self::document::Document;
use self::operation::OperationPage;
use crate::{Access, Console, Page, Path, Problem, Routes};

const DOCUMENT: &str = "/api/openapi.json";
const DOCS: &str = "/api/docs";
const TITLE: &str = "API";

#[derive(Clone)]
struct Docs {
    json: Bytes,
    document: Arc<Document>,
}

/// The document and the pages are public, but the operations are not.
pub(crate) fn routes(document: &OpenApi) -> Routes {
    let json = document.to_json().unwrap_or_default();
    let document = serde_json::from_str(&json).expect("each operation has an id, a tag and responses");
    Routes::new()
        .page(Access::Public, DOCUMENT, json_document)
        .page(Access::Public, DOCS, index)
        .page(Access::Public, "/api/docs/{operation}", operation)
        .with_state(Docs { json: json.into(), document: Arc::new(document) })
}

async fn json_document(State(docs): State<Docs>) -> Response {
    ([(header::CONTENT_TYPE, "application/json")], docs.json).into_response()
}

/// All operations by service.
#[derive(Template)]
#[template(path = "api.html")]
struct IndexPage<'a> {
    services: BTreeMap<&'a str, Vec<Entry<'a>>>,
    /// Whether the reader may create tokens.
    may_create_tokens: bool,
}

struct Entry<'a> {
    id: &'a str,
    method: String,
    path: &'a str,
    summary: &'a str,
}

async fn index(console: Console, State(docs): State<Docs>) -> Result<Page, Problem> {
    let mut services: BTreeMap<&str, Vec<Entry<'_>>> = BTreeMap::new();
    for (path, methods) in &docs.document.paths {
        for (method, operation) in methods {
            let entry = Entry {
                id: &operation.operation_id,
                method: method.to_uppercase(),
                path,
                summary: &operation.summary,
            };
            services.entry(operation.service()).or_default().push(entry);
        }
    }
    console.page(TITLE, &IndexPage { services, may_create_tokens: console.may_open("/access") })
}

async fn operation(
    console: Console,
    State(docs): State<Docs>,
    Path(id): Path<String>,
) -> Result<Page, Problem> {
    let page = OperationPage::find(&docs.document, &id).ok_or_else(|| Problem::not_found("operation"))?;
    console.page_below(&[(TITLE, DOCS)], &page.title(), &page)
}
