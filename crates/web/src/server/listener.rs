//! Serves the routes of an app with the limits of `[server]`.

use std::net::SocketAddr;
use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use hob_net::{CertificateFiles, Client, Handler, Server, ServerLimits, ServerTls, SocketWriter};
use hyper::body::Incoming;
use hyper::{Request, Response, Version};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use tower::ServiceExt;

use crate::{Config, Error};

/// The address of the client.
#[derive(Clone, Copy, Debug)]
pub struct Peer(pub SocketAddr);

const MAX_STREAMS: u32 = 128;
/// The largest request head, in bytes.
const MAX_HEAD: u32 = 32 * 1024;

/// Serves requests until `stop` is cancelled, then waits for running requests.
pub(crate) async fn serve(
    config: &Config,
    tls: Option<Arc<ServerTls>>,
    router: Router,
    listener: TcpListener,
    stop: CancellationToken,
) {
    let limits = ServerLimits {
        connections: config.max_connections as usize,
        streams: MAX_STREAMS,
        head_bytes: MAX_HEAD,
        header_timeout: config.header_timeout.get(),
        write_timeout: config.write_timeout.get(),
        drain_timeout: config.drain_timeout.get(),
    };
    Server::new(limits, tls).serve(&RouterHandler(router), &listener, &stop).await;
}

/// The configured certificate files, if any.
pub(crate) fn certificate(config: &Config) -> Result<Option<CertificateFiles<'_>>, Error> {
    match (&config.tls_certificate, &config.tls_key) {
        (Some(certificate), Some(key)) => Ok(Some(CertificateFiles { certificate, key })),
        (None, None) => Ok(None),
        _ => Err(Error::IncompleteTls),
    }
}

#[derive(Clone)]
struct RouterHandler(Router);

impl Handler for RouterHandler {
    type Guard = ();
    type ConnectionState = (Peer, Option<SocketWriter>);
    type Body = Body;

    fn on_connect(&self) {}

    fn on_ready(&self, client: Client) -> Self::ConnectionState {
        (Peer(client.address), client.writer)
    }

    async fn handle(
        &self,
        request: Request<Incoming>,
        (peer, writer): &Self::ConnectionState,
    ) -> Response<Body> {
        let mut request = request.map(Body::new);
        request.extensions_mut().insert(*peer);
        // A connection with HTTP/2 has other streams.
        if let Some(writer) = writer
            && request.version() <= Version::HTTP_11
        {
            request.extensions_mut().insert(writer.clone());
        }
        match self.0.clone().oneshot(request).await {
            Ok(response) => response,
            Err(never) => match never {},
        }
    }
}
