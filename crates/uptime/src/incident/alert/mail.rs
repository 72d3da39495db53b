//! Letters: how they are written, and how the mail server gets them.

use hob_service::config::Secret;
use lettre::message::{Mailbox, header::ContentType};
use lettre::transport::smtp::AsyncSmtpTransportBuilder;
use lettre::transport::smtp::client::{Certificate, Tls, TlsParameters};
use lettre::{AsyncSmtpTransport, AsyncTransport, Message, Tokio1Executor};
use rustls_pki_types::CertificateDer;
use url::Url;

use super::delivery::{ClaimedDelivery, DeliveryOutcome};
use super::send::NotSent;
use super::{Alerts, message};

const NO_ADDRESS: &str = "the address of the mail server is none: smtps://user:password@host";

pub(super) async fn email(
    alerts: &Alerts,
    to: &[Mailbox],
    claimed: &ClaimedDelivery,
) -> Result<DeliveryOutcome, NotSent> {
    let config = alerts.config.now();
    let Some(server) = &config.smtp else {
        return Err(NotSent("no mail server is configured: see uptime.smtp in hob.toml".to_owned()));
    };
    let server = server.read().map_err(|error| {
        tracing::warn!(%error, "the address of the mail server");
        NotSent("the address of the mail server cannot be read".to_owned())
    })?;
    let roots = config.read_roots().map_err(|error| NotSent(error.to_string()))?;
    let message = build_message(&config.mail_from, to, claimed)?;
    let timeout = alerts.timeout();
    let transport: AsyncSmtpTransport<Tokio1Executor> =
        transport(&server, &roots)?.timeout(Some(timeout)).build();
    Ok(match tokio::time::timeout(timeout, transport.send(message)).await {
        Ok(Ok(response)) => DeliveryOutcome::Delivered(format!("status {}", response.code())),
        Ok(Err(error)) => DeliveryOutcome::Failed(error.to_string()),
        Err(_) => DeliveryOutcome::Failed(format!("the mail server did not take it within {timeout:?}")),
    })
}

fn build_message(from: &str, to: &[Mailbox], claimed: &ClaimedDelivery) -> Result<Message, NotSent> {
    let from: Mailbox =
        from.parse().map_err(|_| NotSent("uptime.mail_from in hob.toml is no address".to_owned()))?;
    let subject: String = claimed.notice.title().chars().filter(|c| !c.is_control()).collect();
    // The same for every attempt, so that mail programs show it once.
    let id = format!("<{}@{}>", claimed.id, from.email.domain());
    let mut builder = Message::builder().from(from).subject(subject).message_id(Some(id));
    for recipient in to {
        builder = builder.to(recipient.clone());
    }
    let message = builder.header(ContentType::TEXT_PLAIN).body(message::text(&claimed.notice));
    message.map_err(|error| NotSent(format!("the message cannot be written: {error}")))
}

/// The way to the server, whose certificate is held to the public authorities and those that are configured.
fn transport(server: &Secret, roots: &[CertificateDer<'_>]) -> Result<AsyncSmtpTransportBuilder, NotSent> {
    // Errors repeat the address, which holds a password.
    let unusable = |_| NotSent(NO_ADDRESS.to_owned());
    let builder = AsyncSmtpTransport::<Tokio1Executor>::from_url(server.reveal()).map_err(unusable)?;
    let url = Url::parse(server.reveal()).map_err(|_| NotSent(NO_ADDRESS.to_owned()))?;
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
