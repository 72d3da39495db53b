//! The page of one operation.

use askama::Template;
use serde_json::Value;

use super::document::{Content, Document, Operation};
use super::schema::{Field, NamedType, paragraphs};
use crate::components::{CopyButton, Markup};

const JSON: &str = "application/json";

#[derive(Template)]
#[template(path = "api_operation.html")]
pub(super) struct OperationPage<'a> {
    path: &'a str,
    method: String,
    text: Markup,
    /// By where they are: `path`, `query`, `header`.
    parameters: Vec<(&'a str, Field)>,
    body: Option<Body<'a>>,
    responses: Vec<ResponseRow<'a>>,
    /// A command that runs the operation.
    curl: String,
    types: Vec<NamedType<'a>>,
}

/// The body of a request.
struct Body<'a> {
    text: Markup,
    contents: Vec<(&'a str, Markup)>,
}

struct ResponseRow<'a> {
    status: &'a str,
    text: Markup,
    contents: Vec<(&'a str, Markup)>,
}

impl<'a> OperationPage<'a> {
    pub(super) fn find(document: &'a Document, id: &str) -> Option<Self> {
        let mut operations = document.paths.iter().flat_map(|(path, methods)| {
            methods.iter().map(move |(method, operation)| (path.as_str(), method.as_str(), operation))
        });
        let (path, method, operation) = operations.find(|(_, _, operation)| operation.operation_id == id)?;
        Some(Self::new(document, path, method, operation))
    }

    fn new(document: &'a Document, path: &'a str, method: &str, operation: &'a Operation) -> Self {
        let of_body = operation.request_body.iter().flat_map(|body| body.content.values());
        let of_responses = operation.responses.values().flat_map(|response| response.content.values());
        let of_parameters = operation.parameters.iter().map(|parameter| &parameter.schema);
        let schemas = of_parameters.chain(of_body.chain(of_responses).map(|content| &content.schema));
        let method = method.to_uppercase();
        let content = |(media_type, content): (&'a String, &'a Content)| {
            (media_type.as_str(), document.components.kind(&content.schema))
        };
        Self {
            path,
            text: paragraphs(&operation.text()),
            parameters: operation
                .parameters
                .iter()
                .map(|one| {
                    let field = document.components.field(
                        one.name.clone(),
                        one.required,
                        &one.schema,
                        &one.description,
                    );
                    (one.location.as_str(), field)
                })
                .collect(),
            body: operation.request_body.as_ref().map(|body| Body {
                text: paragraphs(&body.description),
                contents: body.content.iter().map(content).collect(),
            }),
            responses: operation
                .responses
                .iter()
                .map(|(status, response)| ResponseRow {
                    status: if status == "default" { "other" } else { status },
                    text: paragraphs(&response.description),
                    contents: response.content.iter().map(content).collect(),
                })
                .collect(),
            curl: curl(document, path, &method, operation),
            types: document.components.types_of(schemas),
            method,
        }
    }

    pub(super) fn title(&self) -> String {
        format!("{} {}", self.method, self.path)
    }
}

impl Operation {
    pub(super) fn service(&self) -> &str {
        self.tags.first().map_or("", String::as_str)
    }

    fn text(&self) -> String {
        format!("{}.\n\n{}", self.summary, self.description)
    }
}

/// A command with the required parameters and fields.
fn curl(document: &Document, path: &str, method: &str, operation: &Operation) -> String {
    let query: Vec<String> = operation
        .parameters
        .iter()
        .filter(|parameter| parameter.location == "query" && parameter.required)
        .map(|parameter| format!("{}={{{}}}", parameter.name, parameter.name))
        .collect();
    let query = if query.is_empty() { String::new() } else { format!("?{}", query.join("&")) };
    // Without -g, curl reads the braces of the placeholders as a list.
    let globs = if path.contains('{') || !query.is_empty() { " -g" } else { "" };
    let mut command = format!("curl{globs} \"$HOB_SERVER{path}{query}\"");
    let body = operation.request_body.as_ref().and_then(|body| body.content.first_key_value());
    let is_json = body.is_some_and(|(media_type, _)| media_type == JSON);
    // curl chooses POST for a body.
    if method != "GET" && !(method == "POST" && body.is_some()) {
        command += &format!(" -X {method}");
    }
    if !operation.security.is_empty() {
        command += " \\\n  -H \"Authorization: Bearer $HOB_TOKEN\"";
    }
    match body {
        Some((_, content)) if is_json => {
            let example: Value = document.components.example(&content.schema);
            command += &format!(" \\\n  --json '{}'", example.to_string().replace('\'', "'\\''"));
        }
        Some((media_type, _)) => {
            command += &format!(" \\\n  -H \"Content-Type: {media_type}\" --data-binary @FILE");
        }
        None => {}
    }
    command
}
