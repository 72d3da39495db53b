//! Writes changes of presence to the outbox.
//!
//! Presence is in Redis, so an event and its change are not one transaction. The database has the presence that was last reported.
//! All nodes report the changes that they receive; the first one wins. Changes that no node received, because of a crash or a
//! lost connection, are found by comparing both, so that every state that lasts is reported.

use std::collections::HashMap;
use std::time::Duration;

use hob_database::{Transaction, UnixMs};
use hob_service::Task;
use parking_lot::Mutex;
use tokio::sync::Notify;

use super::notice::{NoticeClass, PresenceReport};
use super::{Notice, consumer};
use crate::conversation::event::iso;
use crate::conversation::outbox::PRESENCE_CHANGED;
use crate::database::reported_presence;
use crate::keys::UserId;
use crate::{Chat, Error};

/// Users of one transaction or one query.
const BATCH: usize = 500;
/// How often the reported presence is compared with Redis.
const COMPARE_EVERY: Duration = Duration::from_secs(30);
const AFTER_FAILURE: Duration = Duration::from_secs(2);
/// More changes do not wait. The comparison finds them.
const MAX_PENDING: usize = 100_000;

/// Changes of presence that are not in the database yet.
#[derive(Debug, Default)]
pub(crate) struct PresenceReports {
    pending: Mutex<HashMap<UserId, Change>>,
    added: Notify,
    compare: Notify,
}

#[derive(Clone, Debug)]
struct Change {
    online: bool,
    timestamp: String,
    version: u64,
}

impl PresenceReports {
    /// Compares all users soon, because changes may have been missed.
    pub(crate) fn compare(&self) {
        self.compare.notify_one();
    }

    fn add(&self, user: UserId, change: Change) {
        let mut pending = self.pending.lock();
        if pending.len() < MAX_PENDING
            && pending.get(&user).is_none_or(|known| known.version < change.version)
        {
            pending.insert(user, change);
            self.added.notify_one();
        }
    }

    /// Takes a batch of changes.
    fn take(&self) -> Vec<(UserId, Change)> {
        let mut pending = self.pending.lock();
        let users: Vec<UserId> = pending.keys().take(BATCH).cloned().collect();
        users.into_iter().filter_map(|user| pending.remove_entry(&user)).collect()
    }
}

pub(super) async fn run(chat: Chat, task: Task) {
    let reports = &chat.inner.presence_reports;
    let mut is_consumed = false;
    // A node that was killed may have left changes.
    reports.compare();
    loop {
        let wake = async {
            tokio::select! {
                () = reports.added.notified() => false,
                () = reports.compare.notified() => true,
                () = tokio::time::sleep(COMPARE_EVERY) => true,
            }
        };
        let compares = tokio::select! {
            compares = wake => compares,
            () = task.stop_requested() => return,
        };
        task.heartbeat();
        if !chat.has_webhook_for(&[NoticeClass::Presence]) {
            continue;
        }
        let done = async {
            if !is_consumed {
                consumer::open_for_presence(&chat).await?;
                is_consumed = true;
            }
            if compares {
                chat.compare_presence().await?;
            }
            chat.report_presence().await
        };
        if let Err(error) = done.await {
            if !error.is_reported() {
                tracing::warn!(%error, "failed to report presence to webhooks, retrying");
            }
            if !task.pause(AFTER_FAILURE).await {
                return;
            }
            reports.compare();
        }
    }
}

impl Chat {
    /// Notes a change of presence, to be reported.
    pub(crate) fn note_presence(&self, user: &UserId, online: bool, timestamp: &str, version: u64) {
        if self.has_webhook_for(&[NoticeClass::Presence]) {
            let change = Change { online, timestamp: timestamp.to_owned(), version };
            self.inner.presence_reports.add(user.clone(), change);
        }
    }

    /// Writes the noted changes to the database and the outbox. What fails is found by the next comparison.
    async fn report_presence(&self) -> Result<(), Error> {
        loop {
            let changes = &self.inner.presence_reports.take();
            if changes.is_empty() {
                return Ok(());
            }
            let work = |tx: Transaction| async move {
                for (user, change) in changes {
                    let Change { online, timestamp, version } = change.clone();
                    if !reported_presence::set(&tx, user, online, version).await? {
                        continue;
                    }
                    let report = PresenceReport { user_id: user.clone(), timestamp, version };
                    let notice =
                        if online { Notice::UserOnline(report) } else { Notice::UserOffline(report) };
                    tx.emit(PRESENCE_CHANGED, user.as_str(), serde_json::to_string(&notice)?)?;
                }
                Ok::<_, Error>(())
            };
            self.inner.database.write(work).await?;
        }
    }

    /// Notes the changes that were missed: users of this node who are not reported as online, and users who are reported as online
    /// but are not.
    async fn compare_presence(&self) -> Result<(), Error> {
        let database = &self.inner.database;
        for users in self.inner.hub.users().chunks(BATCH) {
            let known = reported_presence::online_among(database, users).await?;
            let missing: Vec<UserId> = users.iter().filter(|user| !known.contains(user)).cloned().collect();
            for presence in self.inner.presences.of(&missing).await? {
                if presence.online {
                    let timestamp = iso(UnixMs::now());
                    self.note_presence(&presence.user_id, true, &timestamp, presence.version);
                }
            }
        }
        let mut after = String::new();
        loop {
            let reported = reported_presence::online_after(database, &after, BATCH as u16).await?;
            let Some((last, _)) = reported.last() else { return Ok(()) };
            after = last.to_string();
            let (users, versions): (Vec<UserId>, Vec<u64>) = reported.into_iter().unzip();
            for (presence, reported) in self.inner.presences.of(&users).await?.into_iter().zip(versions) {
                if !presence.online {
                    let timestamp = presence.last_seen.unwrap_or_else(|| iso(UnixMs::now()));
                    // Redis may have lost the version.
                    let version = presence.version.max(reported + 1);
                    self.note_presence(&presence.user_id, false, &timestamp, version);
                }
            }
        }
    }
}
