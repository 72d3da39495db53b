//! Sends due deliveries, one task per webhook.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderMap, HeaderName, HeaderValue};
use futures_util::future::join_all;
use hob_service::Task;
use hob_web::webhook::{AfterAttempt, DeliveryOutcome, RetryPolicy, signature};
use tokio::task::JoinSet;

use super::Webhook;
use super::config::SERVICE;
use super::notice::{Body, MessageRef, Notice};
use crate::conversation::message::Message;
use crate::database::deliveries::{self, ClaimedDelivery, Next};
use crate::database::messages;
use crate::keys::UserId;
use crate::{Chat, Error, metrics};

/// Concurrent requests to one webhook.
const MAX_CONCURRENT: u16 = 8;
/// How often deliveries are polled while one is waiting. Without one, the task waits for a signal.
const POLL_EVERY: Duration = Duration::from_millis(500);
const AFTER_FAILURE: Duration = Duration::from_secs(2);
/// The time to record an attempt, which is part of a claim.
const RECORDING: Duration = Duration::from_secs(10);
const CLEANUP_EVERY: Duration = Duration::from_secs(600);
const MAX_DEAD_LETTERS: u32 = 10_000;
/// Deliveries of a webhook that is not configured become dead letters at this age.
const ABANDONED_AFTER: Duration = Duration::from_secs(3600);
const NOT_CONFIGURED: &str = "the webhook is not configured";

const JSON: HeaderValue = HeaderValue::from_static("application/json");
const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");
const EVENT: HeaderName = HeaderName::from_static("x-hob-event");
const SIGNATURE: HeaderName = HeaderName::from_static(signature::HEADER);

pub(super) async fn run(chat: Chat, task: Task) {
    let mut senders = JoinSet::new();
    let mut busy = HashSet::new();
    let mut cleaned_up: Option<Instant> = None;
    let mut added = chat.inner.database.wakeups(deliveries::ADDED);
    loop {
        while let Some(Ok(webhook)) = senders.try_join_next() {
            busy.remove(&webhook);
        }
        let pause = match deliveries::waiting_webhooks(&chat.inner.database).await {
            Ok(waiting) if waiting.is_empty() => None,
            Ok(waiting) => {
                let config = chat.config();
                for webhook in waiting {
                    // Other nodes may have another configuration.
                    if config.webhooks.contains_key(&webhook) && busy.insert(webhook.clone()) {
                        senders.spawn(send_due(chat.clone(), webhook));
                    }
                }
                Some(POLL_EVERY)
            }
            Err(error) => {
                tracing::warn!(%error, "failed to read due webhook deliveries, retrying");
                Some(AFTER_FAILURE)
            }
        };
        if cleaned_up.is_none_or(|cleaned_up| cleaned_up.elapsed() > CLEANUP_EVERY) {
            if let Err(error) = clean_up(&chat).await {
                tracing::warn!(%error, "failed to clean up webhook deliveries, retrying");
            }
            cleaned_up = Some(Instant::now());
        }
        task.heartbeat();
        let wake = async {
            match pause {
                Some(pause) => added.wait_at_most(pause).await,
                None => added.wait(POLL_EVERY).await,
            }
        };
        if !task.wait(wake).await {
            break;
        }
    }
    // Wait for running attempts: after a restart they would be sent again.
    while senders.join_next().await.is_some() {}
}

/// Sends all due deliveries of a webhook.
async fn send_due(chat: Chat, webhook: String) -> String {
    loop {
        let lease = chat.config().webhook_timeout.get() + RECORDING;
        match deliveries::claim(&chat.inner.database, &webhook, MAX_CONCURRENT, lease).await {
            Ok(claimed) if claimed.is_empty() => return webhook,
            Ok(claimed) => {
                for sent in join_all(claimed.iter().map(|claimed| deliver(&chat, &webhook, claimed))).await {
                    if let Err(error) = sent {
                        tracing::warn!(%error, "failed to record a webhook delivery, it will be sent again");
                    }
                }
            }
            Err(error) => {
                tracing::warn!(%error, "failed to claim webhook deliveries");
                return webhook;
            }
        }
        if chat.inner.tasks.stop_token().is_cancelled() {
            return webhook;
        }
    }
}

/// Makes one attempt and records it.
async fn deliver(chat: &Chat, name: &str, claimed: &ClaimedDelivery) -> Result<(), Error> {
    let config = chat.config();
    let outcome = match config.webhooks.get(name) {
        Some(webhook) => send(chat, webhook, claimed).await?,
        None => DeliveryOutcome::Failed(NOT_CONFIGURED.to_owned()),
    };
    let policy =
        RetryPolicy { max_attempts: config.webhook_attempts, first_pause: config.webhook_backoff.get() };
    let error = outcome.message();
    let (next, label) = match policy.after(claimed.attempts + 1, &outcome) {
        AfterAttempt::Delivered => (Next::Remove, "delivered"),
        AfterAttempt::Retry(pause) => (Next::Retry { pause, error }, "failed"),
        AfterAttempt::Failed => {
            tracing::warn!(
                webhook = name,
                delivery = claimed.id,
                error,
                "webhook delivery failed, it is a dead letter now"
            );
            (Next::Fail { error }, "failed")
        }
    };
    metrics::webhook_attempted(label);
    deliveries::finish(&chat.inner.database, claimed, &next).await
}

/// Sends a delivery. An error means that its message could not be read.
async fn send(chat: &Chat, webhook: &Webhook, claimed: &ClaimedDelivery) -> Result<DeliveryOutcome, Error> {
    let notice: Notice = match serde_json::from_str(&claimed.notice) {
        Ok(notice) => notice,
        Err(error) => return Ok(DeliveryOutcome::PermanentFailure(format!("malformed notice: {error}"))),
    };
    let Some(body) = body(chat, &claimed.id, &notice).await? else {
        return Ok(DeliveryOutcome::PermanentFailure("the message does not exist".to_owned()));
    };
    let secrets = &chat.inner.secrets;
    let secret = secrets
        .check_url(&webhook.secret, SERVICE, webhook.url.url())
        .and_then(|to| secrets.read(&webhook.secret, SERVICE, &to));
    let secret = match secret {
        Ok(secret) => secret,
        // Retried, because the configuration may be fixed meanwhile.
        Err(denied) => return Ok(DeliveryOutcome::Failed(denied.to_string())),
    };
    let signed = signature::sign(&secret, hob_units::unix_time().as_secs(), body.as_bytes());
    let mut headers = HeaderMap::new();
    headers.insert(CONTENT_TYPE, JSON);
    headers.insert(EVENT, HeaderValue::from_static(notice.kind()));
    for (name, value) in [(IDEMPOTENCY_KEY, &claimed.id), (SIGNATURE, &signed)] {
        match HeaderValue::from_str(value) {
            Ok(value) => drop(headers.insert(name, value)),
            Err(error) => return Ok(DeliveryOutcome::PermanentFailure(error.to_string())),
        }
    }
    // The operator has chosen the address.
    let client = chat.inner.http.clone().trusting(webhook.url.url());
    let client = client.with_timeout(chat.config().webhook_timeout.get());
    Ok(match client.post(webhook.url.url(), headers, body).await {
        Ok(response) if response.status.is_success() => {
            DeliveryOutcome::Delivered(format!("status {}", response.status.as_u16()))
        }
        Ok(response) => DeliveryOutcome::Failed(format!("status {}", response.status.as_u16())),
        Err(error) => DeliveryOutcome::Failed(error.to_string()),
    })
}

/// The body of a request, with the message as it is now; `None` if it does not exist.
async fn body(chat: &Chat, id: &str, notice: &Notice) -> Result<Option<String>, Error> {
    let mut body = Body {
        id,
        r#type: notice.kind(),
        message: None,
        participant_ids: None,
        user_ids: None,
        presence: None,
    };
    match notice {
        Notice::UserOnline(report) | Notice::UserOffline(report) => body.presence = Some(report),
        Notice::Offline { user_ids, .. } => body.user_ids = Some(user_ids),
        Notice::Created(message) | Notice::Edited(message) | Notice::Deleted(message) => {
            body.participant_ids = Some(participants(chat, message).await?);
        }
    }
    if let Some(MessageRef { message_id, .. }) = notice.message() {
        let message: Option<Message> = messages::get(&chat.inner.database, message_id).await?;
        let Some(message) = message else { return Ok(None) };
        body.message = Some(message);
    }
    Ok(Some(serde_json::to_string(&body)?))
}

async fn participants(chat: &Chat, message: &MessageRef) -> Result<Vec<UserId>, Error> {
    let participants = chat.participants_since(&message.conversation_id, message.sequence).await?;
    Ok(participants.at(message.sequence).into_owned())
}

/// Gives up deliveries of webhooks that were removed, and deletes old dead letters.
async fn clean_up(chat: &Chat) -> Result<(), Error> {
    let (config, database) = (chat.config(), &chat.inner.database);
    for webhook in deliveries::waiting_webhooks(database).await? {
        if !config.webhooks.contains_key(&webhook) {
            deliveries::fail_waiting(database, &webhook, ABANDONED_AFTER, NOT_CONFIGURED).await?;
        }
    }
    let keep = config.webhook_keep_failed.get();
    while deliveries::delete_old(database, keep, MAX_DEAD_LETTERS).await? > 0 {}
    Ok(())
}
