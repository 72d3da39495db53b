//! Whether a monitor or a channel may use the secrets that it names. This is checked when it is saved, so that the user
//! sees the error, and again whenever a secret is used, because `hob.toml` may have changed in between.

use hob_service::Section as _;
use hob_service::config::{Destination, Secret, SecretDenied, SecretName, Secrets};
use http::header::HOST;
use url::Url;

use crate::Config;
use crate::incident::alert::ChannelTarget;
use crate::monitor::check::{Auth, Check, FieldError, HttpCheck};

const SYSTEM: &str = Config::NAME;

/// Checks that a monitor may use the secret that it names.
pub(crate) fn check_monitor(secrets: &Secrets, check: &Check) -> Result<(), Vec<FieldError>> {
    let Check::Http(http) = check else { return Ok(()) };
    let (field, name) = match &http.auth {
        None => return Ok(()),
        Some(Auth::Basic { password, .. }) => ("http.auth.basic.password", password),
        Some(Auth::Bearer { token }) => ("http.auth.bearer.token", token),
    };
    destinations(secrets, http, name).map_err(|refused| invalid(field, &refused))
}

/// Checks that a channel may use the secret that it names.
pub(crate) fn check_channel(secrets: &Secrets, target: &ChannelTarget) -> Result<(), Vec<FieldError>> {
    let permitted = match target {
        ChannelTarget::Webhook { url, secret: Some(name) } => secrets.check_url(name, SYSTEM, url).map(drop),
        ChannelTarget::Slack { url } | ChannelTarget::Discord { url } => {
            read_webhook_url(secrets, url).map(drop)
        }
        ChannelTarget::Webhook { secret: None, .. } | ChannelTarget::Email { .. } => Ok(()),
    };
    permitted.map_err(|refused| invalid("secret", &refused))
}

/// Reads a secret that a check sends.
pub(crate) fn read_for_check(
    secrets: &Secrets,
    http: &HttpCheck,
    name: &SecretName,
) -> Result<Secret, SecretDenied> {
    destinations(secrets, http, name)?;
    read_for_url(secrets, name, &http.url)
}

/// Reads a secret for a request to this URL.
pub(crate) fn read_for_url(secrets: &Secrets, name: &SecretName, url: &Url) -> Result<Secret, SecretDenied> {
    let to = secrets.check_url(name, SYSTEM, url)?;
    secrets.read(name, SYSTEM, &to)
}

/// Reads a secret that is the URL of a webhook.
pub(crate) fn read_webhook_url(secrets: &Secrets, name: &SecretName) -> Result<Url, SecretDenied> {
    let parse = |secret: &Secret| {
        Url::parse(secret.reveal()).ok().filter(|url| matches!(url.scheme(), "http" | "https"))
    };
    let secret = secrets.read_address(name, SYSTEM, |secret| Destination::of_url(&parse(secret)?))?;
    parse(&secret).ok_or_else(|| SecretDenied::NotAnAddress(name.clone()))
}

/// Whether the request of a check may carry a secret. The host of its `Host` header must be allowed too.
fn destinations(secrets: &Secrets, http: &HttpCheck, name: &SecretName) -> Result<(), SecretDenied> {
    let to = secrets.check_url(name, SYSTEM, &http.url)?;
    for (_, value) in http.headers.iter().filter(|(header, _)| header == HOST) {
        secrets.check_host_header(name, SYSTEM, &to, value.as_bytes())?;
    }
    Ok(())
}

fn invalid(field: &str, refused: &SecretDenied) -> Vec<FieldError> {
    vec![FieldError::new(field, refused.to_string())]
}
