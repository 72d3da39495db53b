//! The middleware that authorizes every request, and records changes in the audit log.

use axum::body::Body;
use axum::extract::{FromRequestParts as _, RawPathParams, Request, State};
use axum::http::{HeaderValue, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, IntoResponseParts, Response, ResponseParts};
use futures_util::StreamExt as _;

use super::audit::Actor;
use super::{Access, Caller, Credential, Identity};
use crate::Problem;
use crate::console::AppContext;
use crate::server::middleware::Sender;

/// How the audit log records a route that changes something.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Audited {
    /// An entry with this action, such as `load.plan.delete`, and the parameters of the path, written after the handler
    /// has succeeded.
    As(&'static str),
    /// The handler writes the entry itself, for example in its transaction.
    ByHandler,
    /// Not recorded: frequent calls of users and programs, such as sending a message or checking a limit.
    No,
}

/// An extension of a response: the text that the audit log records instead of the parameters of the path. A handler
/// that creates something adds it, because the path does not contain the new id.
#[derive(Clone, Debug)]
pub enum AuditDetail {
    /// The id of the object that was created or changed.
    Of(String),
    /// The handler changed nothing, for example in a dry run, so there is no entry.
    Unchanged,
}

impl IntoResponseParts for AuditDetail {
    type Error = std::convert::Infallible;

    fn into_response_parts(self, mut parts: ResponseParts) -> Result<ResponseParts, Self::Error> {
        parts.extensions_mut().insert(self);
        Ok(parts)
    }
}

/// The access that a route requires, and how the audit log records it.
#[derive(Clone, Debug)]
pub(crate) struct RouteRule {
    pub(crate) access: Access,
    /// `None` for routes that only read.
    pub(crate) audited: Option<Audited>,
    /// Whether a response with this status means that the change was made.
    pub(crate) is_done: fn(StatusCode) -> bool,
}

/// Checks the access that a route requires, and adds the [`Caller`](super::Caller) to the request.
pub(crate) async fn authorize(State(rule): State<RouteRule>, mut request: Request, next: Next) -> Response {
    if let Err(problem) = check_access(&rule.access, &mut request).await {
        return problem.into_response();
    }
    let (mut parts, body) = request.into_parts();
    let credential = match parts.extensions.get::<Caller>() {
        Some(_) => Credential::from_request_parts(&mut parts, &()).await.ok(),
        None => None,
    };
    let request = Request::from_parts(parts, body);
    let response = match rule.audited {
        Some(Audited::As(action)) => run_audited(action, rule.is_done, request, next).await,
        _ => next.run(request).await,
    };
    match credential {
        Some(credential) if is_event_stream(&response) => end_with(&credential, response),
        _ => response,
    }
}

fn is_event_stream(response: &Response) -> bool {
    let kind = response.headers().get(header::CONTENT_TYPE);
    kind.is_some_and(|kind| kind.as_bytes().starts_with(b"text/event-stream"))
}

/// Ends a stream when the credential of its client ends.
fn end_with(credential: &Credential, response: Response) -> Response {
    let watch = credential.watch();
    response.map(|body| {
        let ended = async move { watch.ended().await };
        Body::from_stream(body.into_data_stream().take_until(ended))
    })
}

/// Runs the handler and records the change. If the audit log cannot be written, the change remains.
async fn run_audited(
    action: &str,
    is_done: fn(StatusCode) -> bool,
    request: Request,
    next: Next,
) -> Response {
    let (mut parts, body) = request.into_parts();
    let audit = parts.extensions.get::<AppContext>().map(|context| context.web().audit().clone());
    let caller = parts.extensions.get::<Caller>().cloned();
    let params = match RawPathParams::from_request_parts(&mut parts, &()).await {
        Ok(params) => params.iter().map(|(_, value)| value.to_owned()).collect(),
        Err(_) => Vec::new(),
    };
    let mut response = next.run(Request::from_parts(parts, body)).await;
    if response.status().is_redirection()
        && !matches!(response.extensions().get(), Some(AuditDetail::Unchanged))
    {
        add_toast(&mut response, action);
    }
    if let Some(audit) = audit
        && is_done(response.status())
    {
        let detail = match response.extensions().get::<AuditDetail>() {
            Some(AuditDetail::Of(detail)) => detail.clone(),
            Some(AuditDetail::Unchanged) => return response,
            None => params.join(" "),
        };
        let who = caller.as_ref().map_or(Actor::from("anonymous"), Actor::from);
        if let Err(error) = audit.record(who, action, &detail).await {
            tracing::warn!(%error, action, detail, "failed to write an audit log entry");
        }
    }
    response
}

/// Names the action in a cookie for the script of the next page, which shows it as a toast and deletes the cookie. It says
/// nothing that the page does not show, so it needs no protection.
fn add_toast(response: &mut Response, action: &str) {
    let cookie = format!("hob_toast={action}; Path=/; Max-Age=20; SameSite=Lax");
    if let Ok(cookie) = HeaderValue::from_str(&cookie) {
        response.headers_mut().append(header::SET_COOKIE, cookie);
    }
}

async fn check_access(access: &Access, request: &mut Request) -> Result<(), Problem> {
    let Some(frame) = request.extensions().get::<AppContext>() else {
        return Err(Problem::internal("this route was not registered through `App`"));
    };
    let web = frame.web().clone();
    let Some(sender) = request.extensions().get::<Sender>() else {
        return Err(Problem::internal("the route of this request was not registered through `App`"));
    };
    let identified = web.authenticator().identify(request.headers(), sender.address).await;
    let caller = match (access, identified) {
        (Access::Authenticated, Ok(Identity::Caller(caller))) => Some(caller),
        (Access::Scope(scope), Ok(Identity::Caller(caller))) if caller.may(scope) => Some(caller),
        (Access::Scope(scope), Ok(Identity::Caller(_))) => {
            return Err(Problem::forbidden(format!("This requires the scope {scope}.")));
        }
        (Access::Public, Ok(Identity::Caller(caller))) => Some(caller),
        // Public routes work while the database is unavailable.
        (Access::Public, _) => None,
        (_, Err(error)) => return Err(error.into()),
        (_, Ok(Identity::Anonymous)) => return Err(Problem::unauthorized()),
        (_, Ok(Identity::Throttled(wait))) => return Err(Problem::throttled(wait)),
    };
    if let Some(caller) = caller {
        request.extensions_mut().insert(caller);
    }
    Ok(())
}
