//! Alerts by e-mail.

use hob_service::config::Secret;
use lettre::message::{Mailbox, MessageBuilder, header::ContentType};
use lettre::transport::smtp::AsyncSmtpTransportBuilder;
use lettre::transport::smtp::client::{Certificate, Tls, TlsParameters};
use lettre::{AsyncSmtpTransport, AsyncTransport, Message, Tokio1Executor};
use rustls_pki_types::CertificateDer;
use url::Url;

use super::delivery::ClaimedDelivery;
use super::send::NotSent;
use super::{Alerts, message};
use crate::status::mail::{ListUnsubscribe, ListUnsubscribePost, content};
use crate::status::subscriber::Subscriber;
use hob_web::webhook::DeliveryOutcome;

const INVALID_URL: &str =
    "the URL of the mail server is invalid; it must look like smtps://user:password@host";

/// Sends an alert to the recipients of a channel.
pub(super) async fn alert(
    alerts: &Alerts,
    to: &[Mailbox],
    claimed: &ClaimedDelivery,
) -> Result<DeliveryOutcome, NotSent> {
    let builder = builder(alerts, &claimed.notice.title(), to, claimed)?;
    send(alerts, builder.header(ContentType::TEXT_PLAIN).body(message::text(&claimed.notice))).await
}

/// Sends a notice to a subscriber, with the headers to unsubscribe with one click.
pub(super) async fn to_subscriber(
    alerts: &Alerts,
    to: &Subscriber,
    claimed: &ClaimedDelivery,
) -> Result<DeliveryOutcome, NotSent> {
    let Some(content) = content(&claimed.notice, to) else {
        return Ok(DeliveryOutcome::PermanentFailure("the notice is not for subscribers".to_owned()));
    };
    let Ok(mailbox) = to.email.parse::<Mailbox>() else {
        return Ok(DeliveryOutcome::PermanentFailure("the address of the subscriber is invalid".to_owned()));
    };
    let builder = builder(alerts, &content.subject, &[mailbox], claimed)?
        .header(ListUnsubscribe(to.link("unsubscribe")))
        .header(ListUnsubscribePost);
    send(alerts, builder.header(ContentType::TEXT_PLAIN).body(content.text)).await
}

/// Sends a message to the configured mail server.
async fn send(
    alerts: &Alerts,
    message: Result<Message, lettre::error::Error>,
) -> Result<DeliveryOutcome, NotSent> {
    let message = message.map_err(|error| NotSent(format!("the message cannot be built: {error}")))?;
    let config = alerts.config.current();
    let Some(server) = &config.smtp else {
        return Err(NotSent("no mail server is configured; set smtp under [uptime] in hob.toml".to_owned()));
    };
    let server = server.read().map_err(|error| {
        tracing::warn!(%error, "failed to read the URL of the mail server");
        NotSent("the URL of the mail server cannot be read".to_owned())
    })?;
    let roots = config.read_roots().map_err(|error| NotSent(error.to_string()))?;
    let timeout = alerts.timeout();
    let transport: AsyncSmtpTransport<Tokio1Executor> =
        transport(&server, &roots)?.timeout(Some(timeout)).build();
    Ok(match tokio::time::timeout(timeout, transport.send(message)).await {
        Ok(Ok(response)) => DeliveryOutcome::Delivered(format!("status {}", response.code())),
        Ok(Err(error)) => DeliveryOutcome::Failed(error.to_string()),
        Err(_) => {
            DeliveryOutcome::Failed(format!("the mail server did not accept the message within {timeout:?}"))
        }
    })
}

fn builder(
    alerts: &Alerts,
    subject: &str,
    to: &[Mailbox],
    claimed: &ClaimedDelivery,
) -> Result<MessageBuilder, NotSent> {
    let from: Mailbox =
        alerts.config.current().mail_from.parse().map_err(|_| {
            NotSent("mail_from under [uptime] in hob.toml is not an e-mail address".to_owned())
        })?;
    let subject: String = subject.chars().filter(|c| !c.is_control()).collect();
    // The same for every attempt, so that mail clients show the message once.
    let id = message_id(&claimed.id, from.email.domain());
    let mut builder = Message::builder().from(from).subject(subject).message_id(Some(id));
    for recipient in to {
        builder = builder.to(recipient.clone());
    }
    Ok(builder)
}

/// The `Message-ID` of a delivery. Mail servers may reject characters that RFC 5322 does not allow, such as the colon of a status
/// page's deliveries.
fn message_id(delivery: &str, domain: &str) -> String {
    let is_allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_');
    let local: String = delivery.chars().map(|c| if is_allowed(c) { c } else { '-' }).collect();
    format!("<{local}@{domain}>")
}

/// The transport to the server. Its certificate must be signed by a public authority or a configured one.
fn transport(server: &Secret, roots: &[CertificateDer<'_>]) -> Result<AsyncSmtpTransportBuilder, NotSent> {
    // The error may contain the URL with its password.
    let unusable = |_| NotSent(INVALID_URL.to_owned());
    let builder = AsyncSmtpTransport::<Tokio1Executor>::from_url(server.reveal()).map_err(unusable)?;
    let url = Url::parse(server.reveal()).map_err(|_| NotSent(INVALID_URL.to_owned()))?;
    let mut tls = TlsParameters::builder(url.host_str().unwrap_or_default().to_owned());
    for root in roots {
        tls = tls.add_root_certificate(Certificate::from_der(root.to_vec()).map_err(unusable)?);
    }
    let asked = url.query_pairs().find(|(name, _)| name == "tls").map(|(_, value)| value.into_owned());
    Ok(match (url.scheme(), asked.as_deref()) {
        ("smtps", _) => builder.tls(Tls::Wrapper(tls.build().map_err(unusable)?)),
        (_, Some("required")) => builder.tls(Tls::Required(tls.build().map_err(unusable)?)),
        (_, Some("opportunistic")) => builder.tls(Tls::Opportunistic(tls.build().map_err(unusable)?)),
        _ => builder,
    })
}
