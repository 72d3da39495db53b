//! The background work for channels of namespaces: presence is renewed, positions are kept, and subscriptions expire.

use std::time::{Duration, Instant};

use hob_service::Task;

use super::{NamespaceHub, find};
use crate::Error;
use crate::chat::now_s;
use crate::keys::SocketId;
use crate::session::protocol::Unsubscribe;
use crate::store::subscribers::RENEW_INTERVAL;

/// How often expired subscriptions are looked for.
const TICK: Duration = Duration::from_secs(1);
/// How often the positions of channels with subscribers are kept from expiring.
const KEEP_INTERVAL: Duration = Duration::from_secs(3600);
/// The most clients in one renewal.
const RENEW_BATCH: usize = 200;

impl NamespaceHub {
    /// Runs until the task is stopped.
    pub(crate) async fn maintain(&self, task: &Task) {
        let (mut renewed, mut kept) = (Instant::now(), Instant::now());
        while task.pause(TICK).await {
            self.end_expired().await;
            if renewed.elapsed() >= RENEW_INTERVAL {
                renewed = Instant::now();
                if let Err(error) = self.renew_presence().await
                    && !error.is_reported()
                {
                    tracing::warn!(%error, "failed to renew the presence of channels, retrying");
                }
            }
            if kept.elapsed() >= KEEP_INTERVAL {
                kept = Instant::now();
                self.keep_positions().await;
            }
            task.heartbeat();
        }
    }

    /// Ends the subscriptions whose tokens have expired. Clients request new tokens and subscribe again.
    async fn end_expired(&self) {
        let grace_s = self.config.current().token_grace.get().as_secs();
        let now_s = now_s().saturating_sub_unsigned(grace_s);
        for channel in self.all_channels() {
            for client in channel.expired(now_s) {
                self.end(&channel.name, &client, Unsubscribe::EXPIRED).await;
            }
        }
    }

    /// Writes the entries of all clients of this node again.
    pub(crate) async fn renew_presence(&self) -> Result<(), Error> {
        let config = self.config.current();
        for channel in self.all_channels() {
            if !find(&config, channel.name.as_str()).is_some_and(|(_, namespace)| namespace.presence) {
                continue;
            }
            for clients in channel.clients().chunks(RENEW_BATCH) {
                let clients: Vec<(SocketId, String)> =
                    clients.iter().map(|(client, info)| (client.socket.clone(), info.to_string())).collect();
                self.subscribers.add(&channel.name, &clients).await?;
            }
        }
        Ok(())
    }

    async fn keep_positions(&self) {
        let config = self.config.current();
        let channels = self.all_channels();
        let calls = channels.iter().filter_map(|channel| {
            let retention = find(&config, channel.name.as_str())?.1.retention()?;
            Some(self.history.keep_call(&channel.name, retention))
        });
        self.send(calls.collect()).await;
    }
}
