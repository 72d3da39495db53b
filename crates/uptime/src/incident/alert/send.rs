//! Sends one notice to one channel.

use hob_service::config::{SecretDenied, SecretName};
use http::header::CONTENT_TYPE;
use http::{HeaderName, HeaderValue};
use url::Url;

use super::delivery::ClaimedDelivery;
use super::mail;
use super::{Alerts, Channel, ChannelTarget, message};
use crate::monitor::secrets;
use crate::probe::Post;
use crate::status::subscriber::Subscriber;
use hob_web::webhook::{DeliveryOutcome, signature};

const JSON: HeaderValue = HeaderValue::from_static("application/json");
const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");
const EVENT: HeaderName = HeaderName::from_static("x-hob-event");
const SIGNATURE: HeaderName = HeaderName::from_static(signature::HEADER);

/// Why a message was not sent. It is retried, because the configuration may be fixed meanwhile.
pub(super) struct NotSent(pub(super) String);

pub(super) async fn send(alerts: &Alerts, channel: &Channel, claimed: &ClaimedDelivery) -> DeliveryOutcome {
    let sent = match &channel.target {
        ChannelTarget::Webhook { url, secret } => webhook(alerts, url, secret.as_ref(), claimed).await,
        ChannelTarget::Slack { url } => chat(alerts, url, message::slack(&claimed.notice)).await,
        ChannelTarget::Discord { url } => chat(alerts, url, message::discord(&claimed.notice)).await,
        ChannelTarget::Email { to } => mail::alert(alerts, to, claimed).await,
    };
    sent.unwrap_or_else(|NotSent(reason)| DeliveryOutcome::Failed(reason))
}

/// Sends a notice to a subscriber of a status page.
pub(super) async fn to_subscriber(
    alerts: &Alerts,
    to: &Subscriber,
    claimed: &ClaimedDelivery,
) -> DeliveryOutcome {
    let sent = mail::to_subscriber(alerts, to, claimed).await;
    sent.unwrap_or_else(|NotSent(reason)| DeliveryOutcome::Failed(reason))
}

async fn webhook(
    alerts: &Alerts,
    url: &Url,
    secret: Option<&SecretName>,
    claimed: &ClaimedDelivery,
) -> Result<DeliveryOutcome, NotSent> {
    let body = message::webhook(&claimed.id, &claimed.notice);
    let unfit =
        |_| NotSent("the delivery id contains characters that are not allowed in a header".to_owned());
    let mut headers = vec![
        (CONTENT_TYPE, JSON),
        (IDEMPOTENCY_KEY, HeaderValue::from_str(&claimed.id).map_err(unfit)?),
        (EVENT, HeaderValue::from_static(claimed.notice.kind().as_str())),
    ];
    if let Some(name) = secret {
        let now = hob_units::unix_time().as_secs();
        let secret = secrets::read_for_url(&alerts.context.secrets, name, url).map_err(refused)?;
        let signed = signature::sign(&secret, now, &body);
        headers.push((SIGNATURE, HeaderValue::from_str(&signed).map_err(unfit)?));
    }
    Ok(post(alerts, url, &headers, body).await)
}

async fn chat(alerts: &Alerts, url: &SecretName, body: Vec<u8>) -> Result<DeliveryOutcome, NotSent> {
    let url = secrets::read_webhook_url(&alerts.context.secrets, url).map_err(refused)?;
    Ok(post(alerts, &url, &[(CONTENT_TYPE, JSON)], body).await)
}

async fn post(
    alerts: &Alerts,
    url: &Url,
    headers: &[(HeaderName, HeaderValue)],
    body: Vec<u8>,
) -> DeliveryOutcome {
    match alerts.probe.post(Post { url, headers, body: body.into() }, alerts.timeout()).await {
        Ok(status) if status.is_success() => {
            DeliveryOutcome::Delivered(format!("status {}", status.as_u16()))
        }
        Ok(status) => DeliveryOutcome::Failed(format!("status {}", status.as_u16())),
        Err(failure) => DeliveryOutcome::Failed(failure.to_string()),
    }
}

#[allow(clippy::needless_pass_by_value, reason = "for `map_err`")]
fn refused(refused: SecretDenied) -> NotSent {
    NotSent(refused.to_string())
}
