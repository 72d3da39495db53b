//! A tower layer that limits and counts the requests of a Rust service without a proxy.

use std::net::{Ipv4Addr, SocketAddr};
use std::pin::Pin;
use std::task::{Context, Poll};

use http::header::{CONTENT_TYPE, HeaderValue};
use http::{Extensions, Request, Response};
use tower_layer::Layer;
use tower_service::Service;

use crate::admission::{Admission, Refusal};

/// Limits and counts the requests of the wrapped service. The address of the peer comes from a [`SocketAddr`] in the extensions
/// of a request, or, with the feature `axum`, from axum's `ConnectInfo`; requests without it all count as the client 0.0.0.0.
#[derive(Clone, Debug)]
pub struct AdmissionLayer {
    admission: Admission,
}

/// A service whose requests are limited and counted.
#[derive(Clone, Debug)]
pub struct AdmissionService<S> {
    admission: Admission,
    inner: S,
}

impl Admission {
    /// A layer that applies the policy to the requests of a service. With axum and the feature `axum`:
    ///
    /// ```no_run
    /// # #[cfg(feature = "axum")]
    /// # async fn example(admission: hob_admission::Admission) -> std::io::Result<()> {
    /// use std::net::SocketAddr;
    ///
    /// let app = axum::Router::new()
    ///     .route("/search/{word}", axum::routing::get(async || "found\n"))
    ///     .layer(admission.layer())
    ///     .into_make_service_with_connect_info::<SocketAddr>();
    /// let listener = tokio::net::TcpListener::bind("127.0.0.1:3000").await?;
    /// axum::serve(listener, app).await
    /// # }
    /// ```
    #[must_use]
    pub fn layer(&self) -> AdmissionLayer {
        AdmissionLayer { admission: self.clone() }
    }
}

impl<S> Layer<S> for AdmissionLayer {
    type Service = AdmissionService<S>;

    fn layer(&self, inner: S) -> AdmissionService<S> {
        AdmissionService { admission: self.admission.clone(), inner }
    }
}

impl<S, B, R> Service<Request<B>> for AdmissionService<S>
where
    S: Service<Request<B>, Response = Response<R>> + Clone + Send + 'static,
    S::Future: Send,
    B: Send + 'static,
    R: From<&'static str>,
{
    type Response = Response<R>;
    type Error = S::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Response<R>, S::Error>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        // `poll_ready` was called on `self.inner`, so that instance must take the call.
        let clone = self.inner.clone();
        let mut inner = std::mem::replace(&mut self.inner, clone);
        let admission = self.admission.clone();
        Box::pin(async move {
            let peer = peer(request.extensions()).unwrap_or((Ipv4Addr::UNSPECIFIED, 0).into());
            let checked = admission.admit(peer, request.method(), request.uri().path(), request.headers());
            let checked = checked.await;
            let mut response = match checked.refusal {
                Some(refusal) => refusal_response(refusal),
                None => inner.call(request).await?,
            };
            checked.write_headers(response.headers_mut());
            checked.finish(response.status());
            Ok(response)
        })
    }
}

fn peer(extensions: &Extensions) -> Option<SocketAddr> {
    #[cfg(feature = "axum")]
    if let Some(axum::extract::ConnectInfo(peer)) = extensions.get() {
        return Some(*peer);
    }
    extensions.get().copied()
}

fn refusal_response<R: From<&'static str>>(refusal: Refusal) -> Response<R> {
    let mut response = Response::new(R::from(refusal.reason()));
    *response.status_mut() = refusal.status();
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    response
}
