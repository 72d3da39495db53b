//! Signing in with a token or by the application: the first command of a connection, and the refresh of its token.

use std::sync::Arc;

use hob_database::UnixMs;
use hob_web::CredentialWatch;

use super::protocol::{self, ConnectRequest, Disconnect, Reply, ReplyError, ReplyResult};
use super::token::{BadToken, Verified};
use super::{CommandResult, Session};
use crate::chat::now_s;
use crate::chat::server::ServerSubscription;
use crate::hub::{Client, WriteLimits, WriteQueue};
use crate::keys::{SocketId, UserId};
use crate::proxy::{Denial, ProxyKind};
use crate::{Error, Refusal};

/// Why a token does not sign in.
enum SignInError {
    /// The client must not try again with a token of this kind.
    Invalid,
    /// The token cannot be verified now: the client tries again.
    Unverified,
    /// The token has expired, or is revoked: the client requests a new one.
    Expired,
    Failed(Error),
}

/// A token whose credential is watched.
struct SignIn {
    verified: Verified,
    credential: CredentialWatch,
}

impl Session {
    pub(super) async fn connect(&mut self, id: u32, request: &ConnectRequest) -> Result<(), Disconnect> {
        let socket = SocketId::new(format!("{:032x}", rand::random::<u128>()));
        let socket = socket.expect("32 hexadecimal digits are an id");
        if request.token.is_empty() && self.chat.has_proxy(ProxyKind::Connect) {
            return self.connect_by_proxy(id, socket, request).await;
        }
        let sign_in = match self.verify(&request.token).await {
            Ok(sign_in) => sign_in,
            Err(SignInError::Invalid) => return Err(Disconnect::INVALID_TOKEN),
            Err(SignInError::Unverified) => return Err(Disconnect::SERVER_ERROR),
            Err(SignInError::Expired) => return Err(self.reject_expired(id)),
            Err(SignInError::Failed(error)) => return Err(setup_failed(&error)),
        };
        let SignIn { verified, credential } = sign_in;
        let client = self.open(id, socket, verified.user, UnixMs(verified.issued_ms)).await?;
        self.expire(verified.expires_s);
        self.credential = credential;
        self.welcome(id, client, Vec::new());
        Ok(())
    }

    /// Connects a client that the application admits.
    async fn connect_by_proxy(
        &mut self,
        id: u32,
        socket: SocketId,
        request: &ConnectRequest,
    ) -> Result<(), Disconnect> {
        let mut grant = match self.ask_to_connect(&socket, request).await {
            Ok(grant) => grant,
            Err(Denial::Disconnected(reason)) => return Err(reason),
            Err(Denial::Failed) => return Err(Disconnect::SERVER_ERROR),
            Err(Denial::Refused(error)) => {
                self.rejection = Some(Box::new(Reply::new(id, ReplyResult::Error(error))));
                return Err(Disconnect::PERMISSION_DENIED);
            }
        };
        if grant.expire_at != 0 && grant.expire_at <= now_s() {
            return Err(Disconnect::EXPIRED);
        }
        let data = grant.take_data();
        let client = self.open(id, socket, grant.user, UnixMs::now()).await?;
        self.expire_by_proxy(grant.expire_at);
        self.welcome(id, Arc::clone(&client), data);
        let max = self.config.channels_per_connection as usize;
        for channel in grant.channels.into_iter().take(max) {
            let subscription = ServerSubscription {
                user: client.user.clone(),
                client: Some(client.socket.clone()),
                channel,
                data: None,
                info: None,
                since: None,
                expires_s: None,
            };
            let subscribed = self.chat.subscribe_here(&subscription).await;
            subscribed.map_err(|error| setup_failed(&error))?;
        }
        Ok(())
    }

    /// Registers the connection of a user.
    async fn open(
        &mut self,
        id: u32,
        socket: SocketId,
        user: UserId,
        token_issued_at: UnixMs,
    ) -> Result<Arc<Client>, Disconnect> {
        let limits = WriteLimits {
            max_bytes: self.config.queue_bytes as usize,
            interval: self.config.write_interval.get(),
        };
        let queue = WriteQueue::new(self.format, limits, self.writer.take());
        let client = Arc::new(Client::new(socket, user, queue));
        client.set_token_issued_at(token_issued_at);
        match self.chat.connect(&client).await {
            Ok(Ok(())) => Ok(client),
            Ok(Err(Refusal::LimitExceeded { .. })) => Err(Disconnect::CONNECTION_LIMIT),
            Ok(Err(Refusal::TokenRevoked)) => Err(self.reject_expired(id)),
            Ok(Err(Refusal::Banned)) => Err(Disconnect::PERMISSION_DENIED),
            Ok(Err(_)) => Err(Disconnect::TOO_MANY_REQUESTS),
            Err(error) => Err(setup_failed(&error)),
        }
    }

    /// Sends the reply to the connect command, with data of the application.
    fn welcome(&mut self, id: u32, client: Arc<Client>, data: Vec<u8>) {
        let mut connected = self.connected(&client);
        connected.data = data;
        connected.ping = u32::try_from(self.config.ping_interval.get().as_secs().max(1)).unwrap_or(u32::MAX);
        connected.pong = true;
        (connected.session, connected.node) = match &self.emulation {
            Some((session, node)) => (session.clone(), node.clone()),
            None => (String::new(), self.chat.node_name().to_owned()),
        };
        client.queue.reply(&Reply::new(id, ReplyResult::Connect(connected)));
        self.client = Some(client);
    }

    /// Replaces the token. It must be for the same user.
    pub(super) async fn refresh(&mut self, client: &Client, token: &str) -> CommandResult {
        let sign_in = match self.verify(token).await {
            Ok(sign_in) if sign_in.verified.user == client.user => sign_in,
            Ok(_) | Err(SignInError::Invalid) => return Err(Disconnect::INVALID_TOKEN),
            Err(SignInError::Unverified) => return Ok(Some(ReplyResult::Error(ReplyError::INTERNAL))),
            Err(SignInError::Expired) => return Ok(Some(ReplyResult::Error(ReplyError::TOKEN_EXPIRED))),
            Err(SignInError::Failed(error)) => return Ok(Some(ReplyResult::Error(super::internal(error)))),
        };
        client.set_token_issued_at(UnixMs(sign_in.verified.issued_ms));
        match self.chat.check_revocation(client).await {
            Ok(Ok(())) => {}
            Ok(Err(Refusal::Banned)) => return Err(Disconnect::PERMISSION_DENIED),
            Ok(Err(_)) => return Err(Disconnect::EXPIRED),
            Err(error) => return Err(setup_failed(&error)),
        }
        self.expire(sign_in.verified.expires_s);
        self.credential = sign_in.credential;
        Ok(Some(ReplyResult::Refresh(self.connected(client))))
    }

    /// Verifies a token and the credential that issued it. The credential is watched before it is checked, so that no
    /// revocation is missed.
    async fn verify(&self, token: &str) -> Result<SignIn, SignInError> {
        let verified = self.chat.inner.tokens.verify(token, now_s()).await;
        let verified = verified.map_err(|reason| match reason {
            BadToken::Invalid => SignInError::Invalid,
            BadToken::Expired => SignInError::Expired,
            BadToken::Unavailable => SignInError::Unverified,
        })?;
        let Some(reference) = &verified.credential else {
            return Ok(SignIn { verified, credential: CredentialWatch::default() });
        };
        let issuer = self.credentials.by_reference(reference).ok_or(SignInError::Invalid)?;
        let credential = issuer.watch();
        match issuer.is_valid().await {
            Ok(true) => Ok(SignIn { verified, credential }),
            Ok(false) => Err(SignInError::Expired),
            Err(error) => Err(SignInError::Failed(error.into())),
        }
    }

    /// Sent as a reply, because clients then request a new token before they reconnect.
    fn reject_expired(&mut self, id: u32) -> Disconnect {
        self.rejection = Some(Box::new(Reply::new(id, ReplyResult::Error(ReplyError::TOKEN_EXPIRED))));
        Disconnect::EXPIRED
    }

    fn connected(&self, client: &Client) -> protocol::ConnectResult {
        protocol::ConnectResult {
            client: client.socket.to_string(),
            version: concat!("hob ", env!("CARGO_PKG_VERSION")).to_owned(),
            // The server asks the application before such a connection expires. Its client does nothing.
            expires: self.proxied_until.is_none(),
            ttl: if self.proxied_until.is_none() { protocol::seconds_until(self.expires_s) } else { 0 },
            ..protocol::ConnectResult::default()
        }
    }
}

fn setup_failed(error: &Error) -> Disconnect {
    if !error.is_reported() {
        tracing::warn!(%error, "failed to set up a chat connection");
    }
    Disconnect::SERVER_ERROR
}
