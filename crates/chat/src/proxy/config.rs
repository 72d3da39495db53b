//! The options of proxies.

use axum::http::{HeaderMap, HeaderName};
use hob_service::Period;
use hob_service::config::{Mistakes, SecretName};
use serde::{Deserialize, Serialize};

use super::ProxyKind;
use crate::Config;
use crate::webhook::WebhookUrl;

const MAX_TIMEOUT: Period = Period::from_secs(30);
const MAX_CONCURRENT: u32 = 10_000;
const MAX_HEADERS: usize = 32;
/// Headers that belong to the request to the application.
const OWN_HEADERS: [&str; 8] = [
    "host",
    "connection",
    "content-length",
    "content-type",
    "transfer-encoding",
    "upgrade",
    "te",
    "x-hob-signature",
];

/// The endpoints of the application, and how they are called.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Proxy {
    /// The name of the secret that signs requests.
    pub secret: SecretName,
    /// Decides on connections without a token.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub connect: Option<WebhookUrl>,
    /// Prolongs connections that it has admitted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refresh: Option<WebhookUrl>,
    /// Decides on subscriptions without a token, in namespaces with `proxy_subscribe`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subscribe: Option<WebhookUrl>,
    /// Decides on publications of clients, in namespaces with `proxy_publish`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub publish: Option<WebhookUrl>,
    /// Answers RPC calls of unknown methods.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rpc: Option<WebhookUrl>,
    /// The headers of the client's request that are passed on.
    #[serde(default)]
    pub headers: Vec<String>,
    #[serde(default = "default_timeout")]
    pub timeout: Period,
    /// The most requests of a node that wait for the application.
    #[serde(default = "default_concurrent")]
    pub max_concurrent: u32,
}

fn default_timeout() -> Period {
    Period::from_secs(1)
}

fn default_concurrent() -> u32 {
    256
}

impl Proxy {
    pub(super) fn url(&self, kind: ProxyKind) -> Option<&WebhookUrl> {
        match kind {
            ProxyKind::Connect => self.connect.as_ref(),
            ProxyKind::Refresh => self.refresh.as_ref(),
            ProxyKind::Subscribe => self.subscribe.as_ref(),
            ProxyKind::Publish => self.publish.as_ref(),
            ProxyKind::Rpc => self.rpc.as_ref(),
        }
    }

    /// The headers of a client that are passed on.
    pub(crate) fn passed_on(&self, headers: &HeaderMap) -> HeaderMap {
        let mut passed = HeaderMap::new();
        for name in self.headers.iter().filter_map(|name| name.parse::<HeaderName>().ok()) {
            for value in headers.get_all(&name) {
                passed.append(name.clone(), value.clone());
            }
        }
        passed
    }
}

pub(crate) fn check(config: &Config, mistakes: &mut Mistakes) {
    let namespaces =
        config.namespaces.iter().map(|(name, namespace)| (format!("namespaces.{name}"), namespace));
    let without = config.without_namespace.iter().map(|one| ("without_namespace".to_owned(), one));
    for (path, namespace) in namespaces.chain(without) {
        for (is_set, kind, option) in [
            (namespace.proxy_subscribe, ProxyKind::Subscribe, "subscribe"),
            (namespace.proxy_publish, ProxyKind::Publish, "publish"),
        ] {
            if is_set && config.proxy.as_ref().and_then(|proxy| proxy.url(kind)).is_none() {
                let reason = format!("proxy_{option} needs a URL; set {option} under [chat.proxy]");
                mistakes.add(path.as_str(), reason);
            }
        }
    }
    let Some(proxy) = &config.proxy else { return };
    mistakes.check_range("proxy.timeout", &proxy.timeout, &(Period::from_millis(1)..=MAX_TIMEOUT));
    mistakes.check_range("proxy.max_concurrent", &proxy.max_concurrent, &(1..=MAX_CONCURRENT));
    if proxy.headers.len() > MAX_HEADERS {
        mistakes.add("proxy.headers", format!("at most {MAX_HEADERS}"));
    }
    for name in &proxy.headers {
        match name.parse::<HeaderName>() {
            Ok(name) if OWN_HEADERS.contains(&name.as_str()) => {
                mistakes.add("proxy.headers", format!("{name} cannot be passed on"));
            }
            Ok(_) => {}
            Err(_) => mistakes.add("proxy.headers", format!("{name:?} is not the name of a header")),
        }
    }
    if proxy.refresh.is_some() && proxy.connect.is_none() {
        mistakes.add("proxy.refresh", "needs connect: connections with a token are not refreshed by a proxy");
    }
}
