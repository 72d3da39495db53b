//! The OpenAPI document, generated from the registered routes.

use utoipa::PartialSchema;
use utoipa::openapi::path::{Operation, PathItem};
use utoipa::openapi::security::{Http, HttpAuthScheme, SecurityRequirement, SecurityScheme};
use utoipa::openapi::{Components, Content, Info, OpenApi, Paths, Ref, RefOr, ResponseBuilder};

use crate::http::problem::{FieldError, ProblemBody};
use crate::{Access, RouteEntry};

/// The name of the security scheme.
const BEARER: &str = "token";

/// A document without operations.
pub(crate) fn empty() -> OpenApi {
    let mut document = OpenApi::new(Info::new("Hob", env!("CARGO_PKG_VERSION")), Paths::new());
    let mut components = Components::new();
    components.schemas.insert("Problem".to_owned(), ProblemBody::schema());
    components.schemas.insert("FieldError".to_owned(), FieldError::schema());
    components.add_security_scheme(BEARER, SecurityScheme::Http(Http::new(HttpAuthScheme::Bearer)));
    document.components = Some(components);
    document
}

/// The operations of a path with their methods.
pub(crate) fn operations(item: &mut PathItem) -> impl Iterator<Item = (&'static str, &mut Operation)> {
    let all = [
        ("GET", &mut item.get),
        ("PUT", &mut item.put),
        ("POST", &mut item.post),
        ("DELETE", &mut item.delete),
        ("OPTIONS", &mut item.options),
        ("HEAD", &mut item.head),
        ("PATCH", &mut item.patch),
        ("TRACE", &mut item.trace),
    ];
    all.into_iter().filter_map(|(method, operation)| Some((method, operation.as_mut()?)))
}

/// Adds the tag, the required access and the error response to an operation. `suffix` distinguishes the methods of one handler.
pub(crate) fn complete(operation: &mut Operation, path: &str, suffix: &str, access: &Access) {
    // "uptime" in "/api/v1/uptime/monitors". Operation ids must be unique over all services.
    let path = path.strip_prefix("/api/v1").unwrap_or(path);
    let service = path.split('/').nth(1).unwrap_or_default().to_owned();
    if let Some(id) = &mut operation.operation_id {
        *id = format!("{service}_{id}{suffix}");
    }
    operation.tags = Some(vec![service]);
    let (summary, rest) = split_summary(&operation.summary.take().unwrap_or_default());
    operation.summary = Some(summary);
    let asks = match access {
        Access::Public => "Public: no token is required.".to_owned(),
        Access::Authenticated => "Requires a token with any scope.".to_owned(),
        Access::Scope(scope) => format!("Requires the scope `{scope}`."),
    };
    let description = operation.description.take().unwrap_or_default();
    let paragraphs = [rest.as_str(), description.trim(), &asks];
    let paragraphs = paragraphs.into_iter().filter(|text| !text.is_empty());
    operation.description = Some(paragraphs.collect::<Vec<_>>().join("\n\n"));
    if *access != Access::Public {
        operation.security = Some(vec![SecurityRequirement::new(BEARER, Vec::<String>::new())]);
    }
    let problem = Content::new(Some(RefOr::Ref(Ref::from_schema_name("Problem"))));
    let failure = ResponseBuilder::new()
        .description("The request failed.")
        .content("application/problem+json", problem);
    operation.responses.responses.entry("default".to_owned()).or_insert_with(|| RefOr::T(failure.build()));
}

/// The first sentence, and the others. Generators of clients use a summary as a title.
fn split_summary(text: &str) -> (String, String) {
    let end = text.find(". ").into_iter().chain(text.find(".\n")).min();
    let (first, rest) = end.map_or((text, ""), |end| (&text[..end], &text[end + 1..]));
    let first = first.trim().trim_end_matches('.');
    (first.replace('\n', " "), rest.trim().to_owned())
}

/// API routes that are missing in the document.
pub(crate) fn missing(document: &OpenApi, entries: &[RouteEntry]) -> Vec<RouteEntry> {
    let mut document = document.clone();
    let documented = |entry: &RouteEntry| {
        let item = document.paths.paths.get_mut(&entry.path);
        item.is_some_and(|item| operations(item).any(|(method, _)| method == entry.method))
    };
    let of_the_api = entries.iter().filter(|entry| entry.path.starts_with("/api/v1/")).cloned();
    let mut documented = documented;
    of_the_api.filter(|entry| !documented(entry)).collect()
}
