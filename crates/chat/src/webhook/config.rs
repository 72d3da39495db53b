//! The options of a webhook.

use hob_service::Section as _;
use hob_service::config::{Mistakes, SecretName};
use serde::{Deserialize, Serialize};
use url::Url;

use super::notice::NoticeClass;
use crate::Config;

const MAX_WEBHOOKS: usize = 16;
const MAX_NAME_BYTES: usize = 64;

/// A URL that receives events.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Webhook {
    pub url: WebhookUrl,
    /// The name of the secret that signs requests.
    pub secret: SecretName,
    /// What is sent.
    pub events: Vec<NoticeClass>,
}

/// An http or https URL without credentials.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct WebhookUrl(Url);

impl WebhookUrl {
    #[must_use]
    pub fn url(&self) -> &Url {
        &self.0
    }
}

impl TryFrom<String> for WebhookUrl {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let url = Url::parse(&text).map_err(|error| format!("not a URL: {error}"))?;
        let is_plain = url.username().is_empty() && url.password().is_none();
        if matches!(url.scheme(), "http" | "https") && is_plain && url.has_host() {
            Ok(Self(url))
        } else {
            Err("must be an http or https URL without credentials".to_owned())
        }
    }
}

impl From<WebhookUrl> for String {
    fn from(url: WebhookUrl) -> Self {
        url.0.into()
    }
}

pub(crate) fn check(config: &Config, mistakes: &mut Mistakes) {
    if config.webhooks.len() > MAX_WEBHOOKS {
        mistakes.add("webhooks", format!("at most {MAX_WEBHOOKS}"));
    }
    for (name, webhook) in &config.webhooks {
        let path = format!("webhooks.{name}");
        let is_fit = |byte: u8| byte.is_ascii_alphanumeric() || b"_-".contains(&byte);
        if name.is_empty() || name.len() > MAX_NAME_BYTES || !name.bytes().all(is_fit) {
            mistakes.add(path.as_str(), "the name must have 1 to 64 letters, digits, '_' or '-'");
        }
        if webhook.events.is_empty() {
            mistakes.add(format!("{path}.events"), "must name at least one of message, offline, presence");
        }
    }
}

/// The name under which secrets are bound to the chat.
pub(super) const SERVICE: &str = Config::NAME;
