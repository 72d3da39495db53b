//! What the application decides for a session, and answers: see `crate::proxy`.

use std::time::{Duration, Instant};

use serde::de::DeserializeOwned;

use super::Session;
use super::protocol::{
    ConnectRequest, Disconnect, PublishRequest, ReplyError, RpcRequest, SubscribeRequest, client_json,
};
use crate::chat::now_s;
use crate::hub::Client;
use crate::keys::SocketId;
use crate::proxy::{
    ConnectGrant, ConnectProxyRequest, Denial, ProxyKind, ProxyRequest, PublishGrant, RefreshGrant, RpcGrant,
    SubscribeGrant,
};

/// The pause before a refresh that had no answer is repeated.
const RETRY_DELAY: Duration = Duration::from_secs(1);

impl Session {
    /// Asks who a client without a token is.
    pub(super) async fn ask_to_connect(
        &self,
        socket: &SocketId,
        request: &ConnectRequest,
    ) -> Result<ConnectGrant, Denial> {
        let data = data_of(&request.data).map_err(Denial::Refused)?;
        let ConnectRequest { name, version, .. } = request;
        let new = ConnectProxyRequest::new(socket.as_str(), self.peer.transport, self.format);
        let request = ConnectProxyRequest { name, version, data, ..new };
        self.chat.ask(ProxyKind::Connect, &self.peer.headers, &request).await
    }

    /// Prolongs a connection that has expired, if the application agrees. While the application does not answer, the
    /// connection stays open for as long as one whose client can refresh its token.
    pub(crate) async fn renew(&mut self) -> Result<(), Disconnect> {
        let (Some(client), Some(until)) = (self.client.clone(), self.proxied_until) else {
            return Err(Disconnect::EXPIRED);
        };
        if !self.chat.has_proxy(ProxyKind::Refresh) {
            return Err(Disconnect::EXPIRED);
        }
        match self.ask(ProxyKind::Refresh, &self.request(&client)).await {
            Ok(RefreshGrant { expired: false, expire_at }) if expire_at == 0 || expire_at > now_s() => {
                self.expire_by_proxy(expire_at);
                client.set_refreshed_until(None);
                Ok(())
            }
            Err(Denial::Disconnected(reason)) => Err(reason),
            Err(Denial::Failed) if Instant::now() < until => {
                self.expires_at = Instant::now() + RETRY_DELAY;
                client.set_refreshed_until(None);
                Ok(())
            }
            Ok(_) | Err(_) => Err(Disconnect::EXPIRED),
        }
    }

    /// Sets when a connection expires that the application has admitted, in Unix seconds; 0: never.
    pub(super) fn expire_by_proxy(&mut self, expires_s: i64) {
        let expires_s = if expires_s == 0 { i64::MAX } else { expires_s };
        let until = self.chat.end_of_connection(expires_s);
        // Asked before the end, so that there is time to repeat the question.
        let refresh_at = until.checked_sub(self.config.token_grace.get()).unwrap_or(until);
        self.expires_at = if self.chat.has_proxy(ProxyKind::Refresh) { refresh_at } else { until };
        self.proxied_until = Some(until);
    }

    pub(super) async fn ask_to_subscribe(
        &self,
        client: &Client,
        request: &SubscribeRequest,
    ) -> Result<SubscribeGrant, ReplyError> {
        let (channel, data) = (Some(request.channel.as_str()), data_of(&request.data)?);
        let request = ProxyRequest { channel, data, ..self.request(client) };
        self.ask(ProxyKind::Subscribe, &request).await.map_err(|denial| refuse(client, denial))
    }

    pub(super) async fn ask_to_publish(
        &self,
        client: &Client,
        request: &PublishRequest,
    ) -> Result<PublishGrant, ReplyError> {
        let (channel, data) = (Some(request.channel.as_str()), data_of(&request.data)?);
        let request = ProxyRequest { channel, data, ..self.request(client) };
        self.ask(ProxyKind::Publish, &request).await.map_err(|denial| refuse(client, denial))
    }

    pub(super) async fn ask_for_result(
        &self,
        client: &Client,
        call: &RpcRequest,
    ) -> Result<RpcGrant, ReplyError> {
        let (method, data) = (Some(call.method.as_str()), data_of(&call.data)?);
        let request = ProxyRequest { method, data, ..self.request(client) };
        self.ask(ProxyKind::Rpc, &request).await.map_err(|denial| refuse(client, denial))
    }

    fn request<'a>(&self, client: &'a Client) -> ProxyRequest<'a> {
        ProxyRequest::new(client.socket.as_str(), self.peer.transport, self.format, client.user.as_str())
    }

    async fn ask<G: DeserializeOwned>(
        &self,
        kind: ProxyKind,
        request: &ProxyRequest<'_>,
    ) -> Result<G, Denial> {
        self.chat.ask(kind, &self.peer.headers, request).await
    }
}

fn data_of(data: &[u8]) -> Result<Option<&serde_json::value::RawValue>, ReplyError> {
    if data.is_empty() { Ok(None) } else { client_json(data).map(Some) }
}

/// The error for a denial. The connection is closed if the application has decided so.
fn refuse(client: &Client, denial: Denial) -> ReplyError {
    match denial {
        Denial::Refused(error) => error,
        Denial::Failed => ReplyError::INTERNAL,
        Denial::Disconnected(reason) => {
            client.queue.close(reason);
            ReplyError::INTERNAL
        }
    }
}
