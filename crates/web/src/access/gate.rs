//! The gate in front of every route.

use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

use super::Access;
use crate::Problem;
use crate::console::Frame;

/// Lets a request pass that may, and tells the handler who is calling.
pub(crate) async fn gate(State(access): State<Access>, mut request: Request, next: Next) -> Response {
    match admit(&access, &mut request).await {
        Ok(()) => next.run(request).await,
        Err(problem) => problem.into_response(),
    }
}

async fn admit(access: &Access, request: &mut Request) -> Result<(), Problem> {
    let Some(frame) = request.extensions().get::<Frame>() else {
        return Err(Problem::internal("a route was mounted outside of an app"));
    };
    let web = frame.web().clone();
    let identified = web.door().identify(request.headers()).await;
    let caller = match (access, identified) {
        // Who cannot be identified right now may still see what everybody may.
        (Access::Public, identified) => identified.unwrap_or_default(),
        (_, Err(error)) => return Err(error.into()),
        (_, Ok(None)) => return Err(Problem::unauthorized()),
        (Access::Known, Ok(caller)) => caller,
        (Access::Scope(scope), Ok(Some(caller))) if caller.may(scope) => Some(caller),
        (Access::Scope(scope), Ok(Some(_))) => {
            return Err(Problem::forbidden(format!("This needs the scope {scope}.")));
        }
    };
    if let Some(caller) = caller {
        request.extensions_mut().insert(caller);
    }
    Ok(())
}
