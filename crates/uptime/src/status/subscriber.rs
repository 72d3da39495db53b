//! Subscribers of a status page: readers who asked for e-mail and confirmed their address.

use std::time::Duration;

use hob_database::{Database, Transaction, UnixMs};
use hob_web::random_secret;
use lettre::Address;

use super::Language;
use super::page::{Slug, StatusPage};
use crate::database::{deliveries, subscribers};
use crate::error::Result;
use crate::incident::alert::delivery::DeliveryKey;
use crate::incident::alert::{ChannelId, Notice};

/// The most subscribers of a page, confirmed or not.
pub const MAX_SUBSCRIBERS: u64 = 5_000;
const MAX_EMAIL_BYTES: usize = 254;
/// How long a subscription can be confirmed. Then it is deleted.
const CONFIRM_WITHIN: Duration = Duration::from_secs(24 * 3600);
/// Between two confirmations to the same address.
const ASK_AGAIN_AFTER: Duration = Duration::from_secs(600);

/// A subscriber as the database has it.
#[derive(Clone, Debug)]
pub struct Subscriber {
    pub id: String,
    pub page: Slug,
    pub email: String,
    /// Confirms and ends the subscription.
    pub(crate) token: String,
    pub(crate) language: Language,
    /// Where the reader found the page: `https://status.example`. Links in e-mail start with it.
    pub(crate) base_url: String,
    pub(crate) asked_at: UnixMs,
    pub(crate) confirmed_at: Option<UnixMs>,
}

/// The outcome of a request to subscribe. The reader sees no difference between the first two: the page must not reveal
/// who has subscribed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SubscribeOutcome {
    /// A confirmation is on its way.
    Asked,
    /// The address has subscribed, or a confirmation was sent a moment ago.
    Known,
    /// The page has [`MAX_SUBSCRIBERS`].
    LimitReached,
}

/// A reader's request.
#[derive(Debug)]
pub(crate) struct NewSubscriber<'a> {
    pub(crate) email: &'a str,
    pub(crate) language: Language,
    pub(crate) base_url: &'a str,
}

/// An address to send e-mail to; `None` if the text is not one.
pub(crate) fn email(text: &str) -> Option<String> {
    let text = text.trim();
    let valid = text.len() <= MAX_EMAIL_BYTES && text.parse::<Address>().is_ok();
    valid.then(|| text.to_owned())
}

/// Adds a subscriber, and sends a request to confirm.
pub(crate) async fn subscribe(
    database: &Database,
    page: &StatusPage,
    new: &NewSubscriber<'_>,
) -> Result<SubscribeOutcome> {
    let work = |tx: Transaction| async move {
        subscribers::delete_unconfirmed(&tx, tx.now().minus(CONFIRM_WITHIN)).await?;
        let subscriber = match subscribers::by_email(&tx, &page.slug, new.email).await? {
            Some(known)
                if known.confirmed_at.is_some() || known.asked_at > tx.now().minus(ASK_AGAIN_AFTER) =>
            {
                return Ok(SubscribeOutcome::Known);
            }
            Some(known) => {
                subscribers::set_asked(&tx, &known.id, tx.now()).await?;
                known
            }
            None if subscribers::count(&tx, &page.slug).await? >= MAX_SUBSCRIBERS => {
                return Ok(SubscribeOutcome::LimitReached);
            }
            None => {
                let added = Subscriber::new(page, new, tx.now());
                subscribers::insert(&tx, &added).await?;
                added
            }
        };
        let notice = Notice::Confirm { title: page.spec.title.clone(), path: page.path() };
        let key = DeliveryKey {
            incident_id: subscriber.id.clone(),
            channel_id: ChannelId::of_page(&page.slug),
            recipient: subscriber.id,
            kind: notice.kind(),
            number: u32::try_from(tx.now().0 / 1000).unwrap_or(u32::MAX),
        };
        deliveries::insert(&tx, &key, &notice, UnixMs(0)).await?;
        Ok(SubscribeOutcome::Asked)
    };
    database.write(work).await
}

/// Confirms a subscription; `false` if there is none, or the request is too old. Idempotent.
pub(crate) async fn confirm(database: &Database, page: &Slug, token: &str) -> Result<bool> {
    let now = UnixMs::now();
    subscribers::confirm(database, page, token, (now.minus(CONFIRM_WITHIN), now)).await
}

impl Subscriber {
    fn new(page: &StatusPage, new: &NewSubscriber<'_>, now: UnixMs) -> Self {
        Self {
            id: format!("s{:016x}", rand::random::<u64>()),
            page: page.slug.clone(),
            email: new.email.to_owned(),
            token: random_secret(),
            language: new.language,
            base_url: new.base_url.to_owned(),
            asked_at: now,
            confirmed_at: None,
        }
    }

    /// An absolute URL of the page: `…/status/default/unsubscribe?token=…`.
    pub(crate) fn link(&self, action: &str) -> String {
        format!("{}/status/{}/{action}?token={}", self.base_url, self.page, self.token)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_checked() {
        assert_eq!(email(" ann@shop.example ").as_deref(), Some("ann@shop.example"));
        for text in ["", "ann", "ann@", "@shop.example", "a b@c.example", "a@b.example\r\nBcc: x@y.example"] {
            assert_eq!(email(text), None, "{text}");
        }
        assert_eq!(email(&format!("{}@shop.example", "a".repeat(250))), None);
    }
}
