//! What back ends do with the connections of users, on all nodes: subscribe, unsubscribe, disconnect, refresh, and list channels.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::Error;
use crate::chat::{Chat, Inner, now_s};
use crate::hub::channel_name::ChannelName;
use crate::hub::{Client, ControlCommand};
use crate::keys::{ConversationId, NamedChannel, SocketId, UserId};
use crate::namespace::{self, NewSubscription, Stream, SubscribeError};
use crate::session::channels::subscribe_result;
use crate::session::protocol::{ClientInfo, Disconnect, Push, Refresh, Reply, Unsubscribe, seconds_until};
use crate::store::history::Position;

/// The most channels that a node lists.
const MAX_SURVEYED_CHANNELS: usize = 2_000;

/// A subscription that a back end makes for a user.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct ServerSubscription {
    pub(crate) user: UserId,
    /// Only this connection.
    pub(crate) client: Option<SocketId>,
    pub(crate) channel: NamedChannel,
    /// JSON for the client.
    pub(crate) data: Option<String>,
    /// JSON that others see of the client.
    pub(crate) info: Option<String>,
    /// The epoch and the offset from which the client continues.
    pub(crate) since: Option<(String, u64)>,
    pub(crate) expires_s: Option<i64>,
}

/// What a node says of itself.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct NodeSurvey {
    pub(crate) uid: String,
    pub(crate) name: String,
    pub(crate) version: String,
    pub(crate) num_clients: u64,
    pub(crate) num_users: u64,
    pub(crate) num_channels: u64,
    pub(crate) num_subs: u64,
    /// In seconds.
    pub(crate) uptime: u64,
    /// The clients of each channel, if they were asked for.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) channels: BTreeMap<String, u64>,
}

impl Chat {
    /// Applies a command on this node and on all others.
    pub(crate) async fn run_everywhere(&self, command: ControlCommand) -> Result<(), Error> {
        let hub = &self.inner.hub;
        self.apply(&command).await?;
        hub.control.broadcast(&hub.node, command).await
    }

    /// Asks all nodes for their load, and for the channels that match a pattern.
    pub(crate) async fn survey(&self, pattern: Option<String>) -> Result<Vec<NodeSurvey>, Error> {
        let hub = &self.inner.hub;
        let mut nodes = vec![self.survey_here(pattern.as_deref())];
        let answers = hub.control.survey(&hub.node, ControlCommand::Survey { pattern }).await?;
        nodes.extend(answers.iter().filter_map(|answer| serde_json::from_str(answer.get()).ok()));
        Ok(nodes)
    }

    /// The answer of this node to a survey, as JSON; `None` for other commands.
    pub(super) fn survey_answer(&self, command: &ControlCommand) -> Option<Box<RawValue>> {
        let ControlCommand::Survey { pattern } = command else { return None };
        serde_json::value::to_raw_value(&self.survey_here(pattern.as_deref())).ok()
    }

    fn survey_here(&self, pattern: Option<&str>) -> NodeSurvey {
        let Inner { hub, namespaces, .. } = &*self.inner;
        let mut channels = hub.channel_counts();
        channels.extend(namespaces.counts());
        let load = hub.load();
        NodeSurvey {
            uid: hub.node.incarnation().to_string(),
            name: self.node_name().to_owned(),
            version: concat!("hob ", env!("CARGO_PKG_VERSION")).to_owned(),
            num_clients: load.connections,
            num_users: load.users,
            num_channels: channels.len() as u64,
            num_subs: channels.iter().map(|(_, clients)| clients).sum(),
            uptime: self.inner.started.elapsed().as_secs(),
            channels: channels
                .into_iter()
                .filter(|(channel, _)| pattern.is_some_and(|pattern| matches(pattern, channel)))
                .take(MAX_SURVEYED_CHANNELS)
                .collect(),
        }
    }

    /// The connections of a user on this node, or one of them.
    fn clients_here(&self, user: &UserId, client: Option<&SocketId>) -> Vec<Arc<Client>> {
        let mut clients = self.inner.hub.clients_of(user);
        clients.retain(|one| client.is_none_or(|client| one.socket == *client));
        clients
    }

    pub(crate) async fn subscribe_here(&self, subscription: &ServerSubscription) -> Result<(), Error> {
        let ServerSubscription { user, client, channel, data, info, since, expires_s } = subscription;
        let config = self.config();
        let Some((_, namespace)) = namespace::find(&config, channel.as_str()) else { return Ok(()) };
        for client in self.clients_here(user, client.as_ref()) {
            let new = NewSubscription {
                client: &client,
                channel,
                namespace,
                since: since.clone().map(|(epoch, offset)| Position { epoch, offset }),
                gets_join_leave: namespace.join_leave && namespace.force_push_join_leave,
                chan_info: info.clone().unwrap_or_default().into_bytes(),
                expires_s: *expires_s,
            };
            let pushes = |stream: Stream| {
                let mut result = subscribe_result(stream);
                result.data = data.clone().unwrap_or_default().into_bytes();
                let missed = std::mem::take(&mut result.publications).into_iter();
                let missed = missed.map(|missed| Push::publication(channel, missed));
                let pushes = std::iter::once(Push::subscribe(channel, result)).chain(missed);
                Ok(pushes.map(Reply::from).collect())
            };
            match self.inner.namespaces.subscribe(new, pushes).await {
                Err(SubscribeError::Failed(error)) => return Err(error),
                Err(SubscribeError::Interrupted) if self.inner.hub.is_connected(user, &client.socket) => {
                    return Err(Error::Unconfirmed);
                }
                // Already subscribed, or the connection has ended.
                Ok(()) | Err(_) => {}
            }
            if !self.inner.hub.is_connected(user, &client.socket) {
                self.inner.namespaces.disconnect(&client.socket).await;
            }
        }
        Ok(())
    }

    /// Ends the subscriptions of a user to a channel, or to all channels if its name is empty.
    pub(super) async fn unsubscribe_here(&self, user: &UserId, client: Option<&SocketId>, channel: &str) {
        let Inner { hub, namespaces, .. } = &*self.inner;
        for client in self.clients_here(user, client) {
            let mut own: Vec<ChannelName> = hub.channels_of(&client.socket);
            own.retain(|name| channel.is_empty() || name.to_string() == channel);
            for name in &own {
                if hub.unsubscribe(name, &client.socket) {
                    client.queue.push(Push::unsubscribe(name, Unsubscribe::SERVER));
                }
            }
            for name in namespaces.channels_of(&client.socket) {
                if channel.is_empty() || name.as_str() == channel {
                    namespaces.end(&name, &client, Unsubscribe::SERVER).await;
                }
            }
        }
    }

    /// Closes the connections of a user, except some. They count as closed at once.
    pub(super) async fn disconnect_here(
        &self,
        user: &UserId,
        client: Option<&SocketId>,
        spared: &[SocketId],
        reason: &Disconnect,
    ) -> Result<(), Error> {
        for client in self.clients_here(user, client) {
            if !spared.contains(&client.socket) {
                self.inner.hub.remove(&client);
                client.queue.close(reason.clone());
                self.close_socket(user, &client.socket).await?;
            }
        }
        Ok(())
    }

    /// Sets when the connections of a user expire; `None` closes them as expired.
    pub(super) fn refresh_here(&self, user: &UserId, client: Option<&SocketId>, expires_s: Option<i64>) {
        for client in self.clients_here(user, client) {
            match expires_s.filter(|expires_s| *expires_s > now_s()) {
                Some(expires_s) => {
                    client.set_refreshed_until(Some(self.end_of_connection(expires_s)));
                    let ttl = seconds_until(expires_s);
                    client.queue.push(Push::refresh(Refresh { expires: true, ttl }));
                }
                None => client.queue.close(Disconnect::EXPIRED),
            }
        }
    }

    /// The connections of the members of a conversation.
    pub(crate) async fn conversation_clients(&self, id: &ConversationId) -> Result<Vec<ClientInfo>, Error> {
        let users = self.participants(id).await?;
        let sockets = self.inner.presences.sockets(&users).await?;
        let info = |user: &UserId, socket: SocketId| ClientInfo {
            user: user.to_string(),
            client: socket.to_string(),
            ..ClientInfo::default()
        };
        let clients = users.iter().zip(sockets);
        Ok(clients.flat_map(|(user, sockets)| sockets.into_iter().map(move |one| info(user, one))).collect())
    }
}

/// The reason of a disconnect that a back end has chosen.
pub(super) fn close_reason(code: u16, reason: &str) -> Disconnect {
    Disconnect { code, reason: Cow::Owned(reason.to_owned()) }
}

/// Whether a name matches a pattern with `*` (any characters) and `?` (one character).
fn matches(pattern: &str, name: &str) -> bool {
    let (pattern, name): (Vec<char>, Vec<char>) = (pattern.chars().collect(), name.chars().collect());
    let (mut at, mut star, mut next) = (0, None, 0);
    let mut index = 0;
    while index < name.len() {
        match pattern.get(at) {
            Some('*') => {
                star = Some(at);
                next = index;
                at += 1;
            }
            Some(wanted) if *wanted == '?' || *wanted == name[index] => {
                at += 1;
                index += 1;
            }
            // The last star takes one more character.
            _ => match star {
                Some(star) => {
                    at = star + 1;
                    next += 1;
                    index = next;
                }
                None => return false,
            },
        }
    }
    pattern[at..].iter().all(|rest| *rest == '*')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pattern_matches_whole_names() {
        for (pattern, name) in [
            ("*", ""),
            ("*", "news:a"),
            ("news:*", "news:a"),
            ("*:a", "news:a"),
            ("n*:?", "news:a"),
            ("a", "a"),
        ] {
            assert!(matches(pattern, name), "{pattern} {name}");
        }
        for (pattern, name) in
            [("news", "news:a"), ("?", ""), ("news:*", "old:news:a"), ("*b", "news:a"), ("", "a")]
        {
            assert!(!matches(pattern, name), "{pattern} {name}");
        }
    }
}
