//! The API of a server, for commands that talk to one instead of working on this machine.

pub(crate) mod login;

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use hob_net::{HttpClient, HttpClientError, HttpResponse, Outbound, client_tls};
use hob_units::Secret;
use hob_web::List;
use hyper::header::{AUTHORIZATION, CONTENT_TYPE, HeaderValue};
use hyper::{HeaderMap, Method, StatusCode};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::time::Instant;
use url::{Host, Url};

use crate::cli::ServerArgs;

/// How long a request may take. The server limits most requests to 30 seconds.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(60);
/// The maximum size of a response, such as the report of a long run.
const MAX_RESPONSE_BYTES: usize = 64 << 20;
/// How long a command that waits for a run tolerates that the server does not answer, for example while it is replaced.
const OUTAGE_TOLERANCE: Duration = Duration::from_secs(60);
const RETRY_INTERVAL: Duration = Duration::from_secs(1);
const PAGE_SIZE: &str = "500";

/// The API of a server.
#[derive(Debug)]
pub(crate) struct Remote {
    client: HttpClient,
    base: Url,
    token: Option<Secret>,
}

/// Why the server did not do what a request asks for.
#[derive(Debug, thiserror::Error)]
enum RequestError {
    #[error("cannot talk to {server}: {source}")]
    NoAnswer { server: Url, source: HttpClientError },
    #[error("{message}")]
    Refused { status: StatusCode, message: String },
}

impl RequestError {
    /// Whether the same request may succeed in a moment.
    fn is_temporary(&self) -> bool {
        match self {
            Self::NoAnswer { source, .. } => !matches!(source, HttpClientError::Body { .. }),
            Self::Refused { status, .. } => {
                matches!(status.as_u16(), 429 | 502 | 503 | 504)
            }
        }
    }
}

/// A problem document (RFC 9457).
#[derive(Default, serde::Deserialize)]
#[serde(default)]
struct Problem {
    detail: String,
    errors: Vec<FieldProblem>,
}

#[derive(serde::Deserialize)]
struct FieldProblem {
    field: String,
    message: String,
}

impl Remote {
    /// The server that is set by options, variables or `hob login`; `None` if the command works on this machine.
    pub(crate) fn chosen(arguments: &ServerArgs) -> Result<Option<Remote>> {
        if arguments.local {
            return Ok(None);
        }
        let token = arguments.token.clone().filter(|token| !token.reveal().is_empty());
        let named = arguments.server.as_deref().filter(|server| !server.is_empty());
        let saved = login::Login::load()?;
        let (base, saved) = match (named, saved) {
            (Some(named), saved) => {
                let base = server_url(named)?;
                // A saved token is for one server only.
                let saved = saved.filter(|saved| saved.server == base);
                (base, saved)
            }
            (None, Some(saved)) => {
                note(&format!("using {}, from `hob login`", saved.server));
                (saved.server.clone(), Some(saved))
            }
            (None, None) => {
                ensure!(
                    token.is_none(),
                    "a token is set, but no server: set --server or HOB_SERVER, or use --local"
                );
                return Ok(None);
            }
        };
        let (saved_token, saved_ca) = saved.map_or((None, None), |saved| (saved.token, saved.ca));
        let ca = arguments.ca.clone().filter(|path| !path.as_os_str().is_empty()).or(saved_ca);
        Ok(Some(Remote::new(base, token.or(saved_token), ca.as_deref())?))
    }

    fn new(base: Url, token: Option<Secret>, ca: Option<&Path>) -> Result<Remote> {
        if base.scheme() == "http" && token.is_some() && !is_loopback(&base) {
            note(&format!("the token is sent to {base} without encryption; use https://"));
        }
        let client = HttpClient::new(&Outbound::default(), client_tls(ca)?).trusting(&base);
        let client = client.with_timeout(REQUEST_TIMEOUT).with_max_body_bytes(MAX_RESPONSE_BYTES);
        Ok(Remote { client, base, token })
    }

    /// The URL of a path of the API: `&["load", "runs", id]`.
    pub(crate) fn url(&self, path: &[&str]) -> Url {
        let mut url = self.base.clone();
        if let Ok(mut segments) = url.path_segments_mut() {
            segments.pop_if_empty().extend(["api", "v1"]).extend(path);
        }
        url
    }

    /// The URL of a page of the console.
    pub(crate) fn page(&self, path: &[&str]) -> Url {
        let mut url = self.base.clone();
        if let Ok(mut segments) = url.path_segments_mut() {
            segments.pop_if_empty().extend(path);
        }
        url
    }

    pub(crate) async fn get<T: DeserializeOwned>(&self, path: &[&str]) -> Result<T> {
        self.read(&self.send(Method::GET, &self.url(path), None).await?)
    }

    /// Repeats the request for a while if the server does not answer.
    pub(crate) async fn get_patiently<T: DeserializeOwned>(&self, path: &[&str]) -> Result<T> {
        let deadline = Instant::now() + OUTAGE_TOLERANCE;
        loop {
            match self.send(Method::GET, &self.url(path), None).await {
                Err(error) if error.is_temporary() && Instant::now() < deadline => {
                    tokio::time::sleep(RETRY_INTERVAL).await;
                }
                response => return self.read(&response?),
            }
        }
    }

    /// All items of a list that has pages.
    pub(crate) async fn list<T: DeserializeOwned>(&self, mut first: Url) -> Result<Vec<T>> {
        first.query_pairs_mut().append_pair("limit", PAGE_SIZE);
        let (mut items, mut page) = (Vec::new(), first.clone());
        loop {
            let list: List<T> = self.read(&self.send(Method::GET, &page, None).await?)?;
            items.extend(list.items);
            let Some(next) = list.next else { return Ok(items) };
            page = first.clone();
            page.query_pairs_mut().append_pair("after", &next);
        }
    }

    pub(crate) async fn post<T: DeserializeOwned>(&self, path: &[&str], body: &impl Serialize) -> Result<T> {
        let body = serde_json::to_vec(body)?;
        self.read(&self.send(Method::POST, &self.url(path), Some(body)).await?)
    }

    pub(crate) async fn put<T: DeserializeOwned>(&self, path: &[&str], body: &impl Serialize) -> Result<T> {
        let body = serde_json::to_vec(body)?;
        self.read(&self.send(Method::PUT, &self.url(path), Some(body)).await?)
    }

    /// `false` if there is no such object.
    pub(crate) async fn delete(&self, path: &[&str]) -> Result<bool> {
        match self.send(Method::DELETE, &self.url(path), None).await {
            Ok(_) => Ok(true),
            Err(RequestError::Refused { status: StatusCode::NOT_FOUND, .. }) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    async fn send(
        &self,
        method: Method,
        url: &Url,
        body: Option<Vec<u8>>,
    ) -> Result<HttpResponse, RequestError> {
        let mut headers = HeaderMap::new();
        if let Some(token) = &self.token
            && let Ok(mut value) = HeaderValue::from_str(&format!("Bearer {}", token.reveal()))
        {
            value.set_sensitive(true);
            headers.insert(AUTHORIZATION, value);
        }
        if body.is_some() {
            headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        }
        let answer = self.client.request(method, url, headers, body.unwrap_or_default().into()).await;
        let response =
            answer.map_err(|source| RequestError::NoAnswer { server: self.base.clone(), source })?;
        if response.status.is_success() {
            return Ok(response);
        }
        Err(RequestError::Refused { status: response.status, message: self.refusal(&response) })
    }

    fn read<T: DeserializeOwned>(&self, response: &HttpResponse) -> Result<T> {
        serde_json::from_slice(&response.body).with_context(|| {
            format!("{} sent an answer that this version cannot read; is it a Hob server?", self.base)
        })
    }

    /// The message of a response that is not a success.
    fn refusal(&self, response: &HttpResponse) -> String {
        let (server, status) = (&self.base, response.status);
        match (status, &self.token) {
            (StatusCode::UNAUTHORIZED, Some(_)) => {
                return format!("{server} does not accept the token; it may be revoked, expired or mistyped");
            }
            (StatusCode::UNAUTHORIZED, None) => {
                return format!("{server} requires a token: set HOB_TOKEN, or run `hob login {server}`");
            }
            _ => {}
        }
        let problem: Problem = serde_json::from_slice(&response.body).unwrap_or_default();
        // A field of the request means nothing to a user who has written a file.
        let error = |error: &FieldProblem| match error.field.as_str() {
            "" | "source" => error.message.clone(),
            field => format!("{field}: {}", error.message),
        };
        match (problem.errors.as_slice(), problem.detail.as_str()) {
            ([], "") => format!("{server} answered with {status}"),
            ([], detail) => detail.trim_end_matches('.').to_owned(),
            (errors, _) => errors.iter().map(error).collect::<Vec<_>>().join("\n"),
        }
    }
}

/// The address of a server, without a path.
fn server_url(text: &str) -> Result<Url> {
    let url = Url::parse(text).ok().filter(|url| matches!(url.scheme(), "http" | "https") && url.has_host());
    let Some(url) = url else { bail!("the server must be a URL such as https://hob.example.com") };
    let is_plain = url.path() == "/" && url.query().is_none() && url.fragment().is_none();
    ensure!(url.username().is_empty() && url.password().is_none(), "the URL of a server has no user");
    ensure!(is_plain, "the URL of a server has no path: write {}", url.origin().ascii_serialization());
    Ok(url)
}

fn is_loopback(url: &Url) -> bool {
    match url.host() {
        Some(Host::Ipv4(address)) => address.is_loopback(),
        Some(Host::Ipv6(address)) => address.is_loopback(),
        Some(Host::Domain(name)) => name == "localhost",
        None => false,
    }
}

/// A message beside the output.
#[expect(clippy::print_stderr, reason = "message beside the output of a command")]
pub(crate) fn note(message: &str) {
    eprintln!("hob: {message}");
}

/// Runs a command that talks to a server.
pub(crate) fn wait<T>(work: impl Future<Output = Result<T>>) -> Result<T> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.context("cannot start the runtime")?.block_on(work)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn address_of_a_server_has_no_path_and_no_user() {
        assert_eq!(server_url("https://hob.example").unwrap().as_str(), "https://hob.example/");
        for wrong in
            ["hob.example", "ftp://hob.example", "https://hob.example/status", "https://a:b@hob.example"]
        {
            assert!(server_url(wrong).is_err(), "{wrong}");
        }
        let error = server_url("https://a:secret@hob.example").unwrap_err().to_string();
        assert!(!error.contains("secret"), "{error}");
    }

    #[test]
    fn ids_are_escaped_in_paths() {
        let remote = Remote::new(server_url("http://127.0.0.1:1").unwrap(), None, None).unwrap();
        assert_eq!(
            remote.url(&["load", "runs", "a/../b?c"]).as_str(),
            "http://127.0.0.1:1/api/v1/load/runs/a%2F..%2Fb%3Fc"
        );
    }
}
