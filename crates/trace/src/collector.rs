//! The collector: its address and headers, and the resource that the spans belong to.

use std::path::Path;

use hob_net::{HttpClient, HttpClientError, Outbound, TlsError, client_tls};
use hob_units::Secret;
use http::header::{CONTENT_TYPE, HeaderName, HeaderValue};
use http::{HeaderMap, StatusCode};
use opentelemetry_proto::tonic::collector::trace::v1::{
    ExportTraceServiceRequest, ExportTraceServiceResponse,
};
use opentelemetry_proto::tonic::common::v1::InstrumentationScope;
use opentelemetry_proto::tonic::resource::v1::Resource;
use opentelemetry_proto::tonic::trace::v1::{ResourceSpans, ScopeSpans, Span};
use percent_encoding::percent_decode_str;
use prost::Message as _;
use url::Url;

use crate::span::key_value;

/// An OpenTelemetry collector that accepts OTLP over HTTP, as Protobuf.
#[derive(Debug)]
pub struct Collector {
    url: Url,
    headers: HeaderMap,
    client: HttpClient,
    resource: Resource,
}

/// Why a collector cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum CollectorError {
    #[error("expected the URL of a collector without credentials and query, such as http://127.0.0.1:4318")]
    Url,
    /// The error does not repeat the headers, because they are secret.
    #[error("expected name=value, separated by commas")]
    Headers,
    #[error(transparent)]
    Tls(#[from] TlsError),
}

/// Why the collector did not take a batch.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ExportError {
    #[error(transparent)]
    Http(#[from] HttpClientError),
    #[error("the collector answered {0}")]
    Status(StatusCode),
}

impl Collector {
    /// A collector with the URL of its OTLP endpoint, to which `/v1/traces` is added, and the authorities that are
    /// trusted instead of the public ones. The resource names this program and its node.
    pub fn new(url: &str, roots: Option<&Path>, service: &str, node: &str) -> Result<Self, CollectorError> {
        let url = Self::parse_url(url)?;
        // The operator has chosen the address, so it may be a private one.
        let client = HttpClient::new(&Outbound::default(), client_tls(roots)?).trusting(&url);
        let attributes = vec![
            key_value("service.name", service),
            key_value("service.version", env!("CARGO_PKG_VERSION")),
            key_value("service.instance.id", node),
        ];
        let resource = Resource { attributes, ..Resource::default() };
        let headers = [(CONTENT_TYPE, HeaderValue::from_static("application/x-protobuf"))];
        Ok(Self { url, headers: headers.into_iter().collect(), client, resource })
    }

    /// Adds headers in the format of `OTEL_EXPORTER_OTLP_HEADERS`: `name=value,name=value`, with percent-encoded values.
    pub fn with_headers(mut self, headers: &Secret) -> Result<Self, CollectorError> {
        self.headers.extend(Self::parse_headers(headers)?);
        Ok(self)
    }

    /// Parses the URL of a collector, and returns the one that takes traces.
    pub fn parse_url(text: &str) -> Result<Url, CollectorError> {
        let mut url = Url::parse(text).map_err(|_| CollectorError::Url)?;
        let is_plain = matches!(url.scheme(), "http" | "https")
            && url.username().is_empty()
            && url.password().is_none()
            && url.query().is_none()
            && url.fragment().is_none();
        let path = format!("{}/v1/traces", url.path().trim_end_matches('/'));
        url.set_path(&path);
        if is_plain { Ok(url) } else { Err(CollectorError::Url) }
    }

    pub fn parse_headers(headers: &Secret) -> Result<HeaderMap, CollectorError> {
        let parse = |pair: &str| {
            let (name, value) = pair.split_once('=')?;
            let name = HeaderName::try_from(name.trim()).ok()?;
            let value = percent_decode_str(value.trim()).collect::<Vec<u8>>();
            let mut value = HeaderValue::try_from(value).ok()?;
            value.set_sensitive(true);
            Some((name, value))
        };
        let pairs = headers.reveal().split(',').filter(|pair| !pair.trim().is_empty());
        pairs.map(parse).collect::<Option<HeaderMap>>().ok_or(CollectorError::Headers)
    }

    /// A batch as the body of a request.
    pub(crate) fn encode(&self, spans: Vec<Span>) -> Vec<u8> {
        let scope = InstrumentationScope {
            name: "hob".to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            ..InstrumentationScope::default()
        };
        let scope_spans = vec![ScopeSpans { scope: Some(scope), spans, ..ScopeSpans::default() }];
        let resource = Some(self.resource.clone());
        let resource_spans = vec![ResourceSpans { resource, scope_spans, ..ResourceSpans::default() }];
        ExportTraceServiceRequest { resource_spans }.encode_to_vec()
    }

    /// Sends a batch, and returns how many of its spans the collector rejected.
    pub(crate) async fn send(&self, body: Vec<u8>) -> Result<u64, ExportError> {
        let response = self.client.post(&self.url, self.headers.clone(), body).await?;
        if !response.status.is_success() {
            return Err(ExportError::Status(response.status));
        }
        // An answer in another format is an acceptance too.
        let answer = ExportTraceServiceResponse::decode(response.body).unwrap_or_default();
        let rejected = answer.partial_success.map_or(0, |partial| partial.rejected_spans);
        Ok(u64::try_from(rejected).unwrap_or(0))
    }
}

impl ExportError {
    /// Whether the same batch may be accepted later, by the specification of OTLP.
    pub(crate) fn is_transient(&self) -> bool {
        match self {
            Self::Http(_) => true,
            Self::Status(status) => matches!(status.as_u16(), 429 | 502 | 503 | 504),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn path_of_traces_is_added_to_the_url() {
        for (url, full) in [
            ("http://collector:4318", "http://collector:4318/v1/traces"),
            ("https://example.com/otlp/", "https://example.com/otlp/v1/traces"),
        ] {
            assert_eq!(Collector::parse_url(url).unwrap().as_str(), full);
        }
    }

    #[test]
    fn url_with_anything_else_is_refused() {
        for url in [
            "collector:4318",
            "ftp://collector",
            "http://u:p@collector",
            "http://c/?key=1",
            "http://c#a",
            "x",
        ] {
            assert!(Collector::parse_url(url).is_err(), "{url}");
        }
    }

    #[test]
    fn headers_are_decoded_and_marked_as_secret() {
        let headers = Collector::parse_headers(&"api-key=k%3D1, Authorization=Bearer%20x,".into()).unwrap();
        assert_eq!(
            (&headers["api-key"], &headers["authorization"]),
            (&HeaderValue::from_static("k=1"), &HeaderValue::from_static("Bearer x"),)
        );
        assert!(headers.values().all(HeaderValue::is_sensitive));
    }

    #[test]
    fn unusable_headers_are_refused_without_repeating_them() {
        for text in ["hunter2", "a b=hunter2", "a=hunter2%0a", "=hunter2"] {
            let refused = Collector::parse_headers(&text.into()).unwrap_err();
            assert!(!format!("{refused} {refused:?}").contains("hunter2"), "{text}");
        }
    }
}
