//! A whole app on a free port, and a small client that talks to it as others would: over the wire.

use std::net::{Ipv4Addr, SocketAddr};

use hob_service::{Live, ServiceContext};
use hob_web::{App, Config, Routes, Stage, Web};
use http::header::{self, HeaderName};
use http::{HeaderMap, Method, Request, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::wait::LIMIT;

/// An app that serves. It stops when it is dropped, or in order with [`TestApp::stop`].
#[derive(Debug)]
pub struct TestApp {
    web: Web,
    address: SocketAddr,
    stop: CancellationToken,
    served: Option<JoinHandle<()>>,
    client: Client<HttpConnector, Full<Bytes>>,
    /// Sent with every request.
    headers: HeaderMap,
}

/// A response, read to its end.
#[derive(Clone, Debug)]
pub struct Answer {
    pub status: StatusCode,
    pub headers: HeaderMap,
    pub body: Bytes,
}

impl TestApp {
    /// Serves these routes, open to everybody on this machine.
    pub async fn start(context: &ServiceContext, routes: Routes) -> Self {
        Self::configured(context, Live::fixed(Config::default()), |_| routes).await
    }

    /// Serves the routes that are made for this web, with a configuration of one's own.
    pub async fn configured(
        context: &ServiceContext,
        config: Live<Config>,
        routes: impl FnOnce(&Web) -> Routes,
    ) -> Self {
        let web = Web::open(context, config).unwrap_or_else(|error| panic!("{error}"));
        let routes = routes(&web);
        Self::over(web, routes).await
    }

    /// Serves these routes over a web that is open, but not started.
    pub async fn over(web: Web, routes: Routes) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("a free port");
        let address = listener.local_addr().expect("an address");
        let app = App::new(&web, routes, Stage::Real);
        web.start();
        let stop = CancellationToken::new();
        let served = tokio::spawn(app.serve(listener, stop.clone()));
        let client = Client::builder(TokioExecutor::new()).build_http();
        Self { web, address, stop, served: Some(served), client, headers: HeaderMap::new() }
    }

    pub fn web(&self) -> &Web {
        &self.web
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// `http://127.0.0.1:PORT/path`
    pub fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    /// Sends this token with every request from now on.
    pub fn use_token(&mut self, token: &str) {
        self.use_header(header::AUTHORIZATION, &format!("Bearer {token}"));
    }

    /// Sends this header with every request from now on.
    pub fn use_header(&mut self, name: HeaderName, value: &str) {
        self.headers.insert(name, value.parse().expect("a header's value"));
    }

    /// Sends no headers of one's own any more.
    pub fn forget_headers(&mut self) {
        self.headers.clear();
    }

    pub async fn get(&self, path: &str) -> Answer {
        self.ask(Method::GET, path, None).await
    }

    pub async fn delete(&self, path: &str) -> Answer {
        self.ask(Method::DELETE, path, None).await
    }

    pub async fn post(&self, path: &str, body: &impl Serialize) -> Answer {
        self.ask(Method::POST, path, Some(json(body))).await
    }

    pub async fn put(&self, path: &str, body: &impl Serialize) -> Answer {
        self.ask(Method::PUT, path, Some(json(body))).await
    }

    pub async fn patch(&self, path: &str, body: &impl Serialize) -> Answer {
        self.ask(Method::PATCH, path, Some(json(body))).await
    }

    /// Sends a form, as a page does.
    pub async fn submit(&self, path: &str, fields: &[(&str, &str)]) -> Answer {
        let form = serde_urlencoded::to_string(fields).expect("a form");
        self.ask(Method::POST, path, Some(("application/x-www-form-urlencoded", form.into_bytes()))).await
    }

    /// Asks for a path and does not wait for the end of the response, which may be a stream.
    pub async fn open(&self, path: &str) -> http::Response<Incoming> {
        self.send(Method::GET, path, None).await
    }

    /// Any method, with a body and its content type.
    pub async fn ask(&self, method: Method, path: &str, body: Option<(&str, Vec<u8>)>) -> Answer {
        let (head, body) = self.send(method, path, body).await.into_parts();
        let body = tokio::time::timeout(LIMIT, body.collect()).await.expect("the body in time");
        Answer { status: head.status, headers: head.headers, body: body.expect("a whole body").to_bytes() }
    }

    async fn send(
        &self,
        method: Method,
        path: &str,
        body: Option<(&str, Vec<u8>)>,
    ) -> http::Response<Incoming> {
        let mut request = Request::builder().method(method).uri(self.url(path));
        let headers = request.headers_mut().expect("a request");
        headers.extend(self.headers.clone());
        if let Some((kind, _)) = &body {
            headers.insert(header::CONTENT_TYPE, kind.parse().expect("a content type"));
        }
        let body = Full::new(body.map(|(_, bytes)| Bytes::from(bytes)).unwrap_or_default());
        let sent = self.client.request(request.body(body).expect("a request"));
        let answered = tokio::time::timeout(LIMIT, sent).await.expect("an answer in time");
        answered.unwrap_or_else(|error| panic!("{path}: {error}"))
    }

    /// Tells the app to stop, and waits until it has.
    pub async fn stop(mut self) {
        self.stop.cancel();
        if let Some(served) = self.served.take() {
            let ended = tokio::time::timeout(LIMIT, served).await.expect("the app stops in time");
            ended.expect("no panic");
        }
    }
}

fn json(body: &impl Serialize) -> (&'static str, Vec<u8>) {
    ("application/json", serde_json::to_vec(body).expect("JSON"))
}

impl Drop for TestApp {
    fn drop(&mut self) {
        self.stop.cancel();
        if let Some(served) = &self.served {
            served.abort();
        }
    }
}

impl Answer {
    /// The body as a value. Panics, showing the body, where it is another.
    #[track_caller]
    pub fn json<T: DeserializeOwned>(&self) -> T {
        let read = serde_json::from_slice(&self.body);
        read.unwrap_or_else(|error| panic!("{error}: {} {}", self.status, self.text()))
    }

    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// A header's value; empty where there is none.
    pub fn header(&self, name: &str) -> &str {
        self.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
    }
}
