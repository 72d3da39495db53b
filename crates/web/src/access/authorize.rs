//! The middleware that authorizes every request.

use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

use super::Access;
use crate::Problem;
use crate::console::AppContext;

/// Checks the access that a route requires, and adds the [`Caller`](super::Caller) to the request.
pub(crate) async fn authorize(State(access): State<Access>, mut request: Request, next: Next) -> Response {
    match check_access(&access, &mut request).await {
        Ok(()) => next.run(request).await,
        Err(problem) => problem.into_response(),
    }
}

async fn check_access(access: &Access, request: &mut Request) -> Result<(), Problem> {
    let Some(frame) = request.extensions().get::<AppContext>() else {
        return Err(Problem::internal("route is not part of an App"));
    };
    let web = frame.web().clone();
    let identified = web.authenticator().identify(request.headers()).await;
    let caller = match (access, identified) {
        // Public routes work while the database is unavailable.
        (Access::Public, identified) => identified.unwrap_or_default(),
        (_, Err(error)) => return Err(error.into()),
        (_, Ok(None)) => return Err(Problem::unauthorized()),
        (Access::Authenticated, Ok(caller)) => caller,
        (Access::Scope(scope), Ok(Some(caller))) if caller.may(scope) => Some(caller),
        (Access::Scope(scope), Ok(Some(_))) => {
            return Err(Problem::forbidden(format!("This requires the scope {scope}.")));
        }
    };
    if let Some(caller) = caller {
        request.extensions_mut().insert(caller);
    }
    Ok(())
}
