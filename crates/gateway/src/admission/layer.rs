//! A tower layer that limits and counts the requests of a Rust service without the proxy.
//!
//! ```no_run
//! # async fn example(gateway: hob_gateway::Gateway) -> std::io::Result<()> {
//! use std::net::SocketAddr;
//!
//! let app = axum::Router::new()
//!     .route("/", axum::routing::get(async || "hello"))
//!     .layer(gateway.layer())
//!     .into_make_service_with_connect_info::<SocketAddr>();
//! let listener = tokio::net::TcpListener::bind("127.0.0.1:3000").await?;
//! axum::serve(listener, app).await
//! # }
//! ```

use std::net::{Ipv4Addr, SocketAddr};
use std::pin::Pin;
use std::task::{Context, Poll};

use axum::extract::ConnectInfo;
use http::header::{CONTENT_TYPE, HeaderValue};
use http::{Request, Response};
use tower::{Layer, Service};

use crate::admission::{Admission, Refusal};
use crate::gateway::Gateway;

/// Limits and counts the requests of the wrapped service. The peer's address comes from axum's [`ConnectInfo`];
/// requests without it all count as the client 0.0.0.0.
#[derive(Clone, Debug)]
pub struct GatewayLayer {
    admission: Admission,
}

/// A service whose requests are limited and counted.
#[derive(Clone, Debug)]
pub struct GatewayService<S> {
    admission: Admission,
    inner: S,
}

impl Gateway {
    /// A layer that applies this gateway's rules.
    #[must_use]
    pub fn layer(&self) -> GatewayLayer {
        GatewayLayer { admission: self.admission().clone() }
    }
}

impl<S> Layer<S> for GatewayLayer {
    type Service = GatewayService<S>;

    fn layer(&self, inner: S) -> GatewayService<S> {
        GatewayService { admission: self.admission.clone(), inner }
    }
}

impl<S, B, R> Service<Request<B>> for GatewayService<S>
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
            let peer = request.extensions().get::<ConnectInfo<SocketAddr>>();
            let peer = peer.map_or(SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0)), |ConnectInfo(peer)| *peer);
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

fn refusal_response<R: From<&'static str>>(refusal: Refusal) -> Response<R> {
    let mut response = Response::new(R::from(refusal.reason()));
    *response.status_mut() = refusal.status();
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    response
}
