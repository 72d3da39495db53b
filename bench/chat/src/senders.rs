//! Senders that wait for each acknowledgement before they send the next message: how many messages a server accepts.

use std::net::SocketAddr;
use std::time::Instant;

use anyhow::{Context, Result, bail};
use futures_util::future::try_join_all;
use futures_util::{SinkExt as _, StreamExt as _};
use tokio_tungstenite::tungstenite::Message;

use crate::clients::connect;
use crate::member::MemberId;
use crate::protocol::{Event, Protocol};

/// Sends until this time, as these members. Returns how many messages were acknowledged.
pub(crate) async fn send_until(
    end: Instant,
    protocol: Protocol,
    server: SocketAddr,
    members: &[MemberId],
) -> Result<u64> {
    let sent = members.iter().map(|member| send_as(end, protocol, server, *member));
    Ok(try_join_all(sent).await?.into_iter().sum())
}

async fn send_as(end: Instant, protocol: Protocol, server: SocketAddr, member: MemberId) -> Result<u64> {
    let mut socket = connect(server, protocol.path()).await?;
    socket.send(Message::text(protocol.join(member, 0))).await?;
    let mut acknowledged = 0;
    while Instant::now() < end {
        let frame = socket.next().await.context("closed")??;
        let Message::Text(text) = &frame else { continue };
        for event in protocol.read(text) {
            match event {
                Event::Joined(_) => {}
                Event::Acknowledged(_) => acknowledged += 1,
                Event::Ping(pong) => {
                    socket.send(Message::text(pong)).await?;
                    continue;
                }
                Event::Text(_) => continue,
                Event::Rejected => bail!("rejected: {text}"),
            }
            let number = usize::try_from(acknowledged)?;
            socket.send(Message::text(protocol.send(member, number, "a short message"))).await?;
        }
    }
    Ok(acknowledged)
}
