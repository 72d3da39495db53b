//! The span of a request, and the trace context that the upstream receives.

use hob_admission::CheckedRequest;
use hob_trace::{Span, SpanRecord, TraceContext, Tracer, attribute};
use http::{HeaderMap, Method, StatusCode};

use super::forward::ClientConnection;
use crate::traffic::endpoints::Endpoints;

/// The span as the parent in the request to the upstream. Without export, the context of the client is passed on
/// unchanged, and a request without a valid one starts a trace all the same.
pub(crate) fn pass_on(tracer: &Tracer, span: &Span, parent: Option<TraceContext>, headers: &mut HeaderMap) {
    match (span.context(), parent) {
        (Some(context), Some(_)) => context.write(headers),
        (Some(context), None) => context.replace(headers),
        (None, Some(_)) => {}
        (None, None) => tracer.new_trace().replace(headers),
    }
}

/// What the check of a request has found, and the status of its response.
pub(crate) fn describe(
    record: &mut SpanRecord,
    (method, client): (&Method, &ClientConnection),
    (endpoints, checked): (&Endpoints, &CheckedRequest),
    status: StatusCode,
) {
    record.set(attribute::CLIENT_ADDRESS, checked.client.address.to_string());
    record.set(attribute::NETWORK_PEER_ADDRESS, client.peer.ip().to_canonical().to_string());
    let endpoint = checked.endpoint().map(|id| endpoints.name(id));
    // The endpoint `other` has no route.
    if let Some((_, route)) = endpoint.as_ref().and_then(|name| name.as_str().split_once(' ')) {
        record.set_route(method, route);
    }
    if let Some(refusal) = checked.refusal {
        record.set(attribute::REFUSAL, refusal.as_str());
    }
    if let Some(rule) = &checked.refused_by {
        record.set(attribute::RATE_LIMIT_RULE, rule.rule().name().to_string());
    }
    record.set_response(status.as_u16());
}
